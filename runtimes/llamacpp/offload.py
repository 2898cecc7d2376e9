"""How many of a model's layers go on which GPU, and how many cells that leaves room for.

llama.cpp counts layers from the end: the output first, then the last block, then the one before.
A layer's part of the cache lies where its weights do. Every GPU that computes needs room for the
activations of a whole forward.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

from models.choice import split_of
from models.fit import estimate, kept_sequences, layer_bytes
from models.gguf import read_file
from models.header import GgufHeader, GgufTensor
from models.kv import KvType
from runtimes.llamacpp.devices import Device
from runtimes.messages import LoadSpec

_BLOCK = re.compile(r"blk\.(\d+)\.")
_CELL_STEP = 256


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes of a model: `weights` of each block and of the output last, `cache` of the same for so
    many cells, `compute` on each GPU that works, `quiet` of the caches that are opened later (each
    layer's, the output's last) for so many places."""

    weights: tuple[int, ...]
    cache: Callable[[int], tuple[int, ...]]
    compute: Callable[[int], int]
    quiet: Callable[[int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Placement:
    """`layers` of `of` are on GPUs, `split` of them on each; `cells` and `quiet` places fit."""

    layers: int
    of: int
    split: tuple[int, ...]
    cells: int
    quiet: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        used = [name for name, count in zip(self.names, self.split, strict=True) if count]
        if not used:
            return "CPU"
        part = "" if self.layers == self.of else f" ({self.layers} of {self.of} layers)"
        return "+".join(used) + part

    def applied(self, spec: LoadSpec) -> LoadSpec:
        """The spec with what this leaves of it."""
        return replace(
            spec,
            gpu_layers=self.layers,
            cells=self.cells,
            context=min(spec.context, self.cells),
            quiet=self.quiet,
        )


HOST = Placement(0, 0, (), 0, 0, ())
# What is tried of the memory that each GPU has, one after the other, while loading fails.
_TRIES = (1.0, 0.85, 0.7, 0.0)


def placements(spec: LoadSpec, look: Callable[[], Sequence[Device]]) -> Iterator[Placement]:
    """Ways to load a model, the next one for when the last one failed for want of memory. `look`
    is asked anew for each: meanwhile the memory may have become another's."""
    header = read_file(spec.path)
    costs = costs_of(
        header,
        [tensor for file in _files(spec.path) for tensor in read_file(file).tensors],
        parallel=spec.parallel,
        context=spec.context,
        kv_type=spec.kv_type,
        full_window=spec.swa_full,
    )
    tries = _TRIES if spec.gpu_layers < 0 else _TRIES[:1]
    for share in tries:
        devices = [replace(d, free=int(d.free * share)) for d in look()]
        yield place(
            devices,
            costs,
            cells=spec.cells,
            least=spec.least_context or spec.context,
            quiet=spec.quiet,
            layers=spec.gpu_layers if spec.gpu_layers >= 0 else None,
        )


def _files(path: Path) -> list[Path]:
    """All files of a model, of which `path` is the first."""
    _, number, count = split_of(path.name)
    names = [path.name.replace(f"-{number:05d}-of-", f"-{n:05d}-of-") for n in range(1, count + 1)]
    return [path.with_name(name) for name in names]


def place(
    devices: Sequence[Device],
    costs: Costs,
    *,
    cells: int,
    least: int,
    quiet: int,
    layers: int | None = None,
) -> Placement:
    """Put `layers` (None: as many as fit) on the GPUs.

    All layers on the GPUs with fewer cells, down to `least`, go before all cells with fewer layers:
    one layer on the CPU slows every token, a shorter cache only those that need it. Where not even
    `least` cells leave room for all layers, as many layers as then fit are taken. Where none fits,
    the model is the host's, with the `cells` that were planned for it. A number that was asked for
    is taken as it is, with the cells that fit, and it may prove too much."""
    of, names = len(costs.weights), tuple(device.name for device in devices)
    least = min(least, cells)
    count = of if layers is None else min(layers, of)
    while layers is None and count and _split(devices, costs, least, count) is None:
        count -= 1
    if not count:
        return Placement(0, of, (0,) * len(devices), cells, quiet, names)
    if _split(devices, costs, least, count) is None:
        return Placement(count, of, _shares(devices, count), least, 0, names)
    cells = _most_cells(devices, costs, least, cells, count)
    split = _split(devices, costs, cells, count)
    assert split is not None
    while quiet and not _fits(devices, costs, cells, split, quiet):
        quiet -= 1
    return Placement(count, of, split, cells, quiet, names)


def _most_cells(devices: Sequence[Device], costs: Costs, least: int, most: int, count: int) -> int:
    """The most cells, `least` to `most`, that leave room for so many layers; `least` do."""
    if _split(devices, costs, most, count) is not None:
        return most
    low, high = least // _CELL_STEP, most // _CELL_STEP + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = _split(devices, costs, middle * _CELL_STEP, count) is not None
        low, high = (middle, high) if fits else (low, middle)
    return max(least, low * _CELL_STEP)


def _split(
    devices: Sequence[Device], costs: Costs, cells: int, count: int
) -> tuple[int, ...] | None:
    """How many of the last `count` layers each GPU takes, or None where they do not fit: by free
    memory, as llama.cpp would, else each as many as it can."""
    shares = _shares(devices, count)
    if _fits(devices, costs, cells, shares, 0):
        return shares
    left = _sizes(costs, cells, count, 0)
    taken: list[int] = []
    for device in devices:
        room = device.usable - costs.compute(cells)
        here = 0
        while here < len(left) and sum(left[: here + 1]) <= room:
            here += 1
        taken.append(here)
        left = left[here:]
    return None if left else tuple(taken)


def _shares(devices: Sequence[Device], count: int) -> tuple[int, ...]:
    """So many layers over the GPUs, in proportion to what each has."""
    total = sum(device.usable for device in devices) or 1
    sums = accumulate(device.usable for device in devices[:-1])
    ends = [0, *(round(count * sum_ / total) for sum_ in sums), count]
    return tuple(end - start for start, end in pairwise(ends))


def _fits(
    devices: Sequence[Device], costs: Costs, cells: int, split: Sequence[int], quiet: int
) -> bool:
    sizes = _sizes(costs, cells, sum(split), quiet)
    # The caches that are opened later compute in buffers of their own.
    compute = costs.compute(cells) * (2 if quiet else 1)
    for device, here in zip(devices, split, strict=True):
        if here and sum(sizes[:here]) + compute > device.usable:
            return False
        sizes = sizes[here:]
    return True


def _sizes(costs: Costs, cells: int, count: int, quiet: int) -> list[int]:
    """Bytes of each of the last `count` layers."""
    layers = zip(costs.weights, costs.cache(cells), costs.quiet(quiet), strict=True)
    return [sum(layer) for layer in layers][len(costs.weights) - count :]


# ---------------------------------------------------------------------- what a model costs


def layer_weights(header: GgufHeader, tensors: Sequence[GgufTensor]) -> tuple[int, ...]:
    """Bytes of each block's weights, and of the output's last. Embeddings of the input stay with
    the host, but where the file has no output matrix, a copy of them is it."""
    sizes = [0] * (header.block_count + 1)
    embedding, has_output = 0, False
    for tensor in tensors:
        block = _BLOCK.match(tensor.name)
        if block is not None and int(block[1]) < header.block_count:
            sizes[int(block[1])] += tensor.num_bytes
        elif tensor.name == "token_embd.weight":
            embedding = tensor.num_bytes
        elif tensor.name.startswith("output"):
            sizes[-1] += tensor.num_bytes
            has_output = has_output or tensor.name == "output.weight"
    if not has_output:
        sizes[-1] += embedding
    return tuple(sizes)


def costs_of(
    header: GgufHeader,
    tensors: Sequence[GgufTensor],
    *,
    parallel: int,
    context: int,
    kv_type: KvType,
    full_window: bool,
) -> Costs:
    """What `place` asks, of a model with these tensors (of all its files)."""
    held = kept_sequences(header, parallel)
    state = header.recurrent_bytes_per_sequence // max(1, header.block_count)

    def cache(cells: int) -> tuple[int, ...]:
        kv = layer_bytes(header, cells, held, kv_type, full_window=full_window)
        # one state more than there are sequences, for passing them on
        return (*(size + state * (held + 1) for size in kv), 0)

    def compute(cells: int) -> int:
        need = estimate(header, cells, sequences=held, kv_type=kv_type, full_window=full_window)
        return need.compute

    def quiet(places: int) -> tuple[int, ...]:
        kv = layer_bytes(header, context, 1, kv_type, full_window=full_window)
        return (*((size + state) * places for size in kv), 0)

    return Costs(layer_weights(header, tensors), cache, compute, quiet)
