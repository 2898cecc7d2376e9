"""The GPUs that llama.cpp can use here, and how much memory they have.

To look at a GPU starts its driver in the process that looks (CUDA takes some hundred MB of host and
device memory for each). So the server never looks itself: a short-lived process does, and only
where the build of llama.cpp has a library for GPUs with memory of their own.
"""

import importlib.util
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

# What the libraries of llama.cpp's backends for GPUs are called: libggml-cuda.so and so on. Metal
# is left out, since its memory is the machine's.
_BACKENDS = ("cuda", "hip", "musa", "sycl", "vulkan", "opencl", "cann")
_LOOK_S = 60.0
# Left free on each GPU, as llama.cpp's own fitting does: other programs, and what its libraries
# take only when they compute. Less on small GPUs.
_MARGIN = 1 << 30


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. `name` is llama.cpp's (CUDA0), sizes are in bytes; where `shares_host` its memory is
    the machine's own."""

    name: str
    free: int
    total: int
    shares_host: bool = False

    @property
    def usable(self) -> int:
        """What a model may take of it."""
        return max(0, self.free - min(_MARGIN, self.total // 8))


@dataclass(frozen=True, slots=True)
class Found:
    """A device as the library tells it. `id` is the same where two backends know one GPU."""

    device: Device
    integrated: bool
    id: str | None


def chosen(found: Sequence[Found]) -> tuple[Device, ...]:
    """Those that llama.cpp puts layers on: GPUs of their own, each once; where there are none,
    integrated ones of the first backend that has any."""
    own: dict[str, Device] = {}
    for gpu in found:
        if not gpu.integrated and not gpu.device.name.startswith("RPC"):
            own.setdefault(gpu.id or gpu.device.name, gpu.device)
    if own:
        return tuple(own.values())
    integrated = [gpu.device for gpu in found if gpu.integrated]
    return tuple(d for d in integrated if _backend(d) == _backend(integrated[0]))


def _backend(device: Device) -> str:
    return device.name.rstrip("0123456789")


def list_devices() -> tuple[Device, ...]:
    """The GPUs as they are now. Starts their drivers in this process."""
    from runtimes.llamacpp.gpus import gpus

    found: list[Found] = []
    for gpu in gpus():
        # Apple's GPU does not call itself integrated, and shares the memory all the same.
        shares = gpu.integrated or gpu.name.startswith("MTL")
        device = Device(gpu.name, gpu.free, gpu.total, shares)
        found.append(Found(device, gpu.integrated, gpu.id))
    return chosen(found)


def device_memory() -> int:
    """Bytes that models may take on GPUs, beside the host's memory; 0 where there are none. Blocks
    for a second or two where there may be some."""
    if not _built_for_gpus(_library_folder()):
        return 0
    return sum(device.usable for device in _looked_at() if not device.shares_host)


def _looked_at() -> tuple[Device, ...]:
    context = multiprocessing.get_context("spawn")
    ends: tuple[Any, Any] = context.Pipe(duplex=False)
    ours, theirs = ends
    process = context.Process(target=_look, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(_LOOK_S) else ()
    except EOFError:  # a driver that dies has no memory for us; the worker will say what is wrong
        return ()
    finally:
        ours.close()
        process.kill()
        process.join()


def _look(connection: Connection) -> None:
    connection.send(list_devices())


def _library_folder() -> Path | None:
    """Where llama-cpp-python finds its libraries. Found without importing it, which loads them."""
    if named := os.environ.get("LLAMA_CPP_LIB_PATH"):
        return Path(named)
    spec = importlib.util.find_spec("llama_cpp")
    return Path(spec.origin).parent / "lib" if spec is not None and spec.origin else None


def _built_for_gpus(folder: Path | None) -> bool:
    if folder is None or not folder.is_dir():
        return False
    names = [file.name.lower() for file in folder.iterdir()]
    return any(f"ggml-{backend}" in name for name in names for backend in _BACKENDS)
