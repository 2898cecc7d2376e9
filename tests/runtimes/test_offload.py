"""Which layers go on which GPU, given numbers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from models.fit import estimate
from models.gguf import read_file
from models.kv import KvType
from runtimes.llamacpp.devices import Device
from runtimes.llamacpp.offload import (
    Costs,
    Placement,
    costs_of,
    layer_weights,
    place,
    placements,
)
from runtimes.messages import LoadSpec
from tests.weights import Kind, write_model

MB = 1 << 20
GB = 1 << 30
# 32 blocks of 100 MB and an output of 300; a cell takes 4 kB of each block; 200 MB to compute in.
# All of it with 8192 cells: 3200 + 300 + 8192 x 32 x 4 / 1024 = 4524 MB, and 200.
LAYERS = 33
WHOLE = 4524 + 200


def model(quiet: int = 0) -> Costs:
    return Costs(
        weights=(100 * MB,) * 32 + (300 * MB,),
        cache=lambda cells: (cells * 4096,) * 32 + (0,),
        compute=lambda cells: 200 * MB,
        quiet=lambda places: (places * quiet * MB,) * 32 + (0,),
    )


def gpu(usable_mb: float, name: str = "CUDA0") -> Device:
    """A GPU of 64 GB of which the model may have so much: 1 GB stays free."""
    return Device(name, int(usable_mb * MB) + GB, 64 * GB)


def placed(
    *devices: Device,
    cells: int = 8192,
    least: int = 1024,
    quiet: int = 0,
    layers: int | None = None,
    costs: Costs | None = None,
) -> Placement:
    return place(devices, costs or model(), cells=cells, least=least, quiet=quiet, layers=layers)


def used(costs: Costs, placement: Placement) -> list[int]:
    """Bytes on each GPU."""
    sizes = [w + k for w, k in zip(costs.weights, costs.cache(placement.cells), strict=True)]
    sizes = sizes[len(sizes) - placement.layers :]
    sums: list[int] = []
    for here in placement.split:
        sums.append(sum(sizes[:here]) + (costs.compute(placement.cells) if here else 0))
        sizes = sizes[here:]
    return sums


def test_what_fits_goes_on_the_gpu_whole() -> None:
    placement = placed(gpu(WHOLE))
    assert (placement.layers, placement.cells, placement.split) == (LAYERS, 8192, (LAYERS,))
    assert str(placement) == "CUDA0"


def test_cells_are_given_up_before_layers() -> None:
    placement = placed(gpu(WHOLE - 1))
    assert placement.layers == LAYERS
    assert placement.cells == 8192 - 256
    tight = placed(gpu(3500 + 200 + 128))  # 128 MB are 1024 cells
    assert (tight.layers, tight.cells) == (LAYERS, 1024)


def test_where_the_least_cells_do_not_fit_layers_are_given_up() -> None:
    placement = placed(gpu(3500 + 200 + 127))
    assert placement.layers == LAYERS - 1  # the first block stays with the host
    # The room of that block is the others' cells: 127 + 104 - 4 MB more than they need at least.
    assert 1024 < placement.cells < 8192
    assert str(placement) == "CUDA0 (32 of 33 layers)"
    half = placed(gpu(2200))
    assert (half.layers, half.split) == (17, (17,))  # 200 + 300 + 16 x 104 = 2164
    assert half.cells == 1024 + 512  # 36 MB over, and 256 more cells are 16


def test_a_context_that_was_asked_for_is_kept() -> None:
    placement = placed(gpu(3500), cells=8192, least=8192)
    assert placement.cells == 8192
    assert placement.layers == 23  # 200 + 300 + 22 x 132 = 3404


def test_where_nothing_fits_the_host_has_all_that_was_planned() -> None:
    placement = placed(gpu(400), quiet=2)
    assert (placement.layers, placement.cells, placement.quiet) == (0, 8192, 2)
    assert str(placement) == "CPU"


def test_a_number_of_layers_is_taken_as_it_is() -> None:
    assert placed(gpu(WHOLE), layers=10).layers == 10
    assert placed(gpu(WHOLE), layers=1000).layers == LAYERS
    assert placed(gpu(WHOLE), layers=10).cells == 8192
    # More than what fits is tried all the same, with the fewest cells.
    forced = placed(gpu(1000), layers=LAYERS, quiet=2)
    assert (forced.layers, forced.split, forced.cells, forced.quiet) == (33, (33,), 1024, 0)


def test_two_gpus_share_by_what_is_free() -> None:
    placement = placed(gpu(6000), gpu(3000, "CUDA1"))
    assert placement.split == (22, 11)
    assert (placement.layers, placement.cells) == (LAYERS, 8192)
    assert str(placement) == "CUDA0+CUDA1"


def test_a_share_that_does_not_fit_is_moved() -> None:
    # By free memory the second would get the output too, which is as large as three blocks.
    devices = (gpu(2700), gpu(2700, "CUDA1"))
    placement = placed(*devices, cells=8192, least=8192)
    assert placement.layers == LAYERS
    assert sum(placement.split) == LAYERS
    sums = used(model(), placement)
    assert all(n <= d.usable for n, d in zip(sums, devices, strict=True))


def test_a_full_gpu_gets_nothing() -> None:
    placement = placed(gpu(0), gpu(WHOLE, "CUDA1"))
    assert placement.split == (0, LAYERS)
    assert str(placement) == "CUDA1"


@pytest.mark.parametrize("free", [(500, 700), (2500, 900, 1600), (4000, 4000), (1, 1), (700,)])
@pytest.mark.parametrize("cells", [512, 4096, 65536])
def test_no_gpu_is_ever_overfilled(free: Sequence[int], cells: int) -> None:
    devices = [gpu(n, f"CUDA{i}") for i, n in enumerate(free)]
    placement = placed(*devices, cells=cells)
    assert min(1024, cells) <= placement.cells <= cells
    assert sum(placement.split) == placement.layers
    for n, device in zip(used(model(), placement), devices, strict=True):
        assert n <= device.usable


def test_quiet_places_get_what_is_left() -> None:
    costs = model(quiet=10)  # 320 MB a place, and 200 MB to compute in beside
    assert placed(gpu(WHOLE + 839), quiet=2, costs=costs).quiet == 1
    assert placed(gpu(WHOLE + 840), quiet=2, costs=costs).quiet == 2
    assert placed(gpu(WHOLE), quiet=2, costs=costs).quiet == 0


def test_a_small_gpu_keeps_less_free() -> None:
    assert Device("CUDA0", 4 * GB, 4 * GB).usable == 4 * GB - GB // 2
    assert Device("CUDA0", 40 * GB, 48 * GB).usable == 39 * GB
    assert Device("CUDA0", 100 * MB, 48 * GB).usable == 0


# ---------------------------------------------------------------------- what a model costs


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mamba", "lfm2"])
def test_costs_add_up_to_the_estimate(tmp_path: Path, kind: Kind) -> None:
    header = read_file(write_model(tmp_path / "model.gguf", kind))
    costs = costs_of(
        header, header.tensors, parallel=2, context=512, kv_type=KvType.F16, full_window=False
    )
    sequences = 2 + (8 if kind in ("mamba", "lfm2") else 16)
    need = estimate(header, 1024, sequences=sequences)
    assert abs(sum(costs.cache(1024)) - need.kv - need.state) < 4 * sequences
    assert costs.compute(1024) == need.compute
    assert costs.cache(1024)[-1] == 0
    embedding = next(t.num_bytes for t in header.tensors if t.name == "token_embd.weight")
    total = sum(tensor.num_bytes for tensor in header.tensors)
    # None of these has an output matrix, so the embedding counts there; LFM2's norm is its own.
    assert sum(costs.weights) in (total, total - 256)
    assert costs.weights[-1] in (embedding, embedding + 256)


def test_an_output_matrix_is_counted_once(tmp_path: Path) -> None:
    header = read_file(write_model(tmp_path / "model.gguf", "llama"))
    embedding = next(t for t in header.tensors if t.name == "token_embd.weight")
    tensors = [*header.tensors, replace(embedding, name="output.weight", num_bytes=77)]
    assert layer_weights(header, tensors)[-1] == 77 + 256  # its norm is 64 numbers


def test_each_try_looks_again_and_asks_for_less(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", "llama")
    spec = LoadSpec("", path, 4096, 8192, 2, 1, least_context=1024)
    looked: list[int] = []

    def look() -> list[Device]:
        looked.append(1)
        return [Device("CUDA0", 8 * GB, 8 * GB)]

    tries = [placement.applied(spec) for placement in placements(spec, look)]
    assert [t.gpu_layers for t in tries] == [5, 5, 5, 0]
    assert len(looked) == 4
    assert all((t.context, t.cells) == (4096, 8192) for t in tries)
    forced = list(placements(replace(spec, gpu_layers=2), look))
    assert [placement.layers for placement in forced] == [2]


def test_a_gpu_that_holds_fewer_cells_than_a_context_shortens_it(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", "llama")
    header = read_file(path)
    spec = LoadSpec("", path, 4096, 8192, 2, 1, least_context=1024)
    need = estimate(header, 2048, sequences=18, weights_bytes=0)
    room = need.kv + need.compute + sum(layer_weights(header, header.tensors))
    device = Device("CUDA0", room + GB, 64 * GB)
    spec = next(placements(spec, lambda: [device])).applied(spec)
    assert (spec.context, spec.cells, spec.gpu_layers) == (2048, 2048, 5)


def test_all_files_of_a_split_model_are_weighed(tmp_path: Path) -> None:
    first = write_model(tmp_path / "model-00001-of-00002.gguf", "llama")
    write_model(tmp_path / "model-00002-of-00002.gguf", "llama", seed=1)
    spec = LoadSpec("", first, 512, 512, 1, 1)
    header = read_file(first)
    weights = layer_weights(header, header.tensors)
    need = estimate(header, 512, sequences=17, weights_bytes=0)
    fits_one = sum(weights) + need.kv + need.compute + 1000
    device = Device("CUDA0", fits_one + GB, 64 * GB)
    assert next(placements(spec, lambda: [device])).layers < 5
