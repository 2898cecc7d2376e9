"""How a cache's keys and values are written: the types, their sizes, and which models allow
them."""

from enum import StrEnum

from models.errors import SettingsError
from models.header import GgufHeader

# llama.cpp turns flash attention off for these, and reads quantized values only with it.
_NO_FLASH_ATTENTION = frozenset({"grok"})


class KvType(StrEnum):
    """How one number of a key or a value is written."""

    F16 = "f16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"

    @property
    def block(self) -> int:
        """Numbers that are written together."""
        return _SIZES[self][0]

    @property
    def bytes_per_element(self) -> float:
        """A block's bytes, its scale included, over its numbers."""
        numbers, size = _SIZES[self]
        return size / numbers


# The gguf package has this table too, but imports numpy to tell it; a test compares the two.
_SIZES = {KvType.F16: (1, 2), KvType.Q8_0: (32, 34), KvType.Q4_0: (32, 18)}


def obstacle(header: GgufHeader, kv_type: KvType) -> str:
    """Why the model's cache cannot be written as `kv_type`, or "" where it can. llama.cpp refuses
    too, but only when the weights are in memory."""
    if kv_type is KvType.F16 or not any(layer.elements_per_token for layer in header.layers()):
        return ""
    if header.architecture in _NO_FLASH_ATTENTION:
        return f"{header.architecture} models run without flash attention, which reads such a cache"
    odd = [size for size in header.head_sizes if size % kv_type.block]
    if odd:
        return f"its attention heads have {odd[0]} numbers, no multiple of {kv_type.block}"
    return ""


def check_kv_type(name: str, header: GgufHeader, kv_type: KvType) -> None:
    """Raises SettingsError where the model's cache cannot be written as `kv_type`."""
    if reason := obstacle(header, kv_type):
        raise SettingsError(
            f"--kv-type {kv_type} cannot be used with {name}: {reason}. Use --kv-type f16."
        )
