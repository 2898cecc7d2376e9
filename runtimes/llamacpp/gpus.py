"""The graphics processors that this build of ggml sees."""

import ctypes
from typing import Any, NamedTuple

import llama_cpp.llama_cpp as _module

_c: Any = _module

_GPU, _INTEGRATED = 1, 2  # enum ggml_backend_dev_type


class Gpu(NamedTuple):
    """A device with memory of bytes; `id` is the hardware's own, where it has one."""

    name: str
    free: int
    total: int
    integrated: bool
    id: str | None


class _DeviceProps(ctypes.Structure):
    """`struct ggml_backend_dev_props`; llama-cpp-python does not declare it."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", ctypes.c_bool * 5),
    ]


def gpus() -> list[Gpu]:
    """The graphics processors of this build, with what is free on each now."""
    # libggml is found through libllama, which is linked to it: also where LLAMA_CPP_LIB_PATH names
    # another build.
    library: Any = _c._lib
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    library.ggml_backend_dev_get.restype = ctypes.c_void_p
    library.ggml_backend_dev_get.argtypes = [ctypes.c_size_t]
    library.ggml_backend_dev_get_props.restype = None
    library.ggml_backend_dev_get_props.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    if not library.ggml_backend_dev_count():
        _c.llama_backend_init()
    found: list[Gpu] = []
    for index in range(library.ggml_backend_dev_count()):
        props: Any = _DeviceProps()
        device = library.ggml_backend_dev_get(index)
        library.ggml_backend_dev_get_props(device, ctypes.byref(props))
        if props.type in (_GPU, _INTEGRATED):
            hardware = props.device_id.decode() if props.device_id else None
            name, free, total = props.name.decode(), props.memory_free, props.memory_total
            found.append(Gpu(name, free, total, props.type == _INTEGRATED, hardware))
    return found
