"""The estimate beside what llama.cpp allocates."""

from pathlib import Path

import pytest

from models.fit import estimate, kept_sequences
from models.gguf import read_file
from models.kv import KvType
from runtimes.base import Row
from runtimes.llamacpp.model import load_writer
from runtimes.messages import LoadSpec
from tests.weights import Kind, write_model

PARALLEL, CELLS = 3, 2048
# The library tells hundredths of a MiB, of each buffer.
ROUNDING = 4 * 10_486


def compare(path: Path, kv_type: KvType = KvType.F16, *, whole: bool = True) -> None:
    header = read_file(path)
    spec = LoadSpec("", path, 1024, CELLS, PARALLEL, 1, swa_full=whole, kv_type=kv_type)
    model = load_writer(spec, lambda _: None)
    try:
        sequences = kept_sequences(header, PARALLEL)
        need = estimate(header, CELLS, sequences=sequences, kv_type=kv_type, full_window=whole)
        held = model.memory()
        assert held.get("kv", 0) == pytest.approx(need.kv, abs=ROUNDING)
        assert held.get("state", 0) == pytest.approx(need.state, abs=ROUNDING)
        assert held["outputs"] == pytest.approx(need.outputs, abs=ROUNDING)
        assert held["weights"] <= need.weights
        assert held["compute"] <= need.compute
        assert model.placement() == "CPU"
        handle = model.executor.open()
        model.executor.step([Row(handle, [1, 2, 3], 0, True)], lambda logits: None)
    finally:
        model.release()


@pytest.mark.parametrize("kv_type", KvType)
def test_each_kv_type_takes_what_was_estimated(smollm2_path: Path, kv_type: KvType) -> None:
    compare(smollm2_path, kv_type)


@pytest.mark.parametrize("whole", [True, False])
def test_a_window_takes_what_was_estimated(tmp_path: Path, whole: bool) -> None:
    compare(write_model(tmp_path / "gemma3.gguf", "gemma3"), whole=whole)


@pytest.mark.parametrize("kind", ["llama", "mamba", "lfm2"])
def test_every_kind_of_memory_takes_what_was_estimated(tmp_path: Path, kind: Kind) -> None:
    compare(write_model(tmp_path / f"{kind}.gguf", kind))


def test_a_model_that_is_kept_off_the_gpus_loads(tmp_path: Path) -> None:
    path = write_model(tmp_path / "llama.gguf", "llama")
    model = load_writer(LoadSpec("", path, 512, 512, 1, 1, gpu_layers=0), lambda _: None)
    model.probe()
    assert model.placement() == "CPU"
    model.release()
