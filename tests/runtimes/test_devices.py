"""Which GPUs count, and what a loaded model holds where."""

from pathlib import Path

import pytest

from runtimes.llamacpp import devices
from runtimes.llamacpp.buffers import memory_of
from runtimes.llamacpp.devices import Device, Found, chosen

GB = 1 << 30
MB = 1 << 20


def found(name: str, integrated: bool = False, hardware: str | None = None) -> Found:
    return Found(Device(name, 8 * GB, 8 * GB, integrated), integrated, hardware)


def names(*gpus: Found) -> list[str]:
    return [device.name for device in chosen(gpus)]


def test_gpus_of_their_own_count_and_integrated_ones_only_without_them() -> None:
    assert names(found("Vulkan0", True), found("CUDA0"), found("CUDA1")) == ["CUDA0", "CUDA1"]
    assert names(found("Vulkan0", True), found("Vulkan1", True), found("SYCL0", True)) == [
        "Vulkan0",
        "Vulkan1",
    ]
    assert names() == []


def test_one_gpu_that_two_backends_know_counts_once() -> None:
    same = "0000:c1:00.0"
    assert names(found("CUDA0", hardware=same), found("Vulkan0", hardware=same)) == ["CUDA0"]
    assert names(found("RPC0[10.0.0.1:50052]"), found("CUDA0")) == ["CUDA0"]


def test_a_build_without_gpus_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def look() -> tuple[Device, ...]:
        raise AssertionError("nothing is to be started")

    monkeypatch.setattr(devices, "_looked_at", look)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    for name in ("libggml.so", "libggml-cpu.so", "libllama.so"):
        (tmp_path / name).touch()
    assert devices.device_memory() == 0
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path / "absent"))
    assert devices.device_memory() == 0


def test_memory_that_is_the_machines_own_is_not_counted_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpus = (Device("CUDA0", 20 * GB, 24 * GB), Device("MTL0", 20 * GB, 24 * GB, shares_host=True))
    monkeypatch.setattr(devices, "_looked_at", lambda: gpus)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    (tmp_path / "libggml-cuda.so.0").touch()
    assert devices.device_memory() == 19 * GB


def test_a_process_of_its_own_looks() -> None:
    """The build of these tests has no GPU; that it can be asked is what is to be seen."""
    assert devices._looked_at() == devices.list_devices()


LINES = [
    "load_tensors:   CPU_Mapped model buffer size =   292.36 MiB\n",
    "load_tensors:        CUDA0 model buffer size =  4403.50 MiB\n",
    "llama_context:  CUDA_Host  output buffer size =     0.50 MiB\n",
    "llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB\n",
    "llama_kv_cache:        CPU KV buffer size =    64.00 MiB\n",
    "llama_memory_recurrent:      CUDA0 RS buffer size =    2.00 MiB\n",
    "sched_reserve:      CUDA0 compute buffer size =   258.50 MiB\n",
    "sched_reserve:  CUDA_Host compute buffer size =    24.00 MiB\n",
    "something else: buffer size = 9 MiB\n",
]


def test_what_a_model_holds_is_read_from_the_librarys_lines() -> None:
    assert memory_of(LINES, ["CUDA0"]) == {
        "weights": int(292.36 * MB) + int(4403.5 * MB),
        "outputs": MB // 2,
        "kv": 576 * MB,
        "state": 2 * MB,
        "compute": int(282.5 * MB),
        "CUDA0": int((4403.5 + 512 + 2 + 258.5) * MB),
    }
    assert memory_of([], ["CUDA0"]) == {}
