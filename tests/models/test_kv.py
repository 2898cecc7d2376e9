"""How a cache may be written."""

from typing import Any

import gguf
import pytest

from models.errors import SettingsError
from models.gguf import read_header
from models.header import GgufHeader
from models.kv import KvType, check_kv_type, obstacle
from tests.tinygguf import LLAMA, tiny_gguf


def header_of(key: int, value: int, arch: str = "llama") -> GgufHeader:
    """A model whose heads have keys and values of these sizes."""
    lengths = {"llama.attention.key_length": key, "llama.attention.value_length": value}
    metadata: dict[str, Any] = LLAMA | lengths
    data = tiny_gguf(arch, {key.replace("llama.", f"{arch}."): v for key, v in metadata.items()})
    return read_header(data, len(data))


@pytest.mark.parametrize("kv_type", KvType)
def test_the_sizes_are_those_of_the_format(kv_type: KvType) -> None:
    numbers, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kv_type.name]]
    assert kv_type.block == numbers
    assert kv_type.bytes_per_element == size / numbers


def test_heads_of_whole_blocks_allow_every_type() -> None:
    header = header_of(128, 64)
    assert [obstacle(header, kv_type) for kv_type in KvType] == ["", "", ""]


def test_other_heads_are_refused_with_what_to_do_instead() -> None:
    header = header_of(96, 80)
    check_kv_type("toy", header, KvType.F16)
    with pytest.raises(SettingsError) as error:
        check_kv_type("toy", header, KvType.Q4_0)
    assert error.value.message == (
        "--kv-type q4_0 cannot be used with toy: its attention heads have 80 numbers, no multiple "
        "of 32. Use --kv-type f16."
    )


def test_a_model_without_flash_attention_is_refused() -> None:
    header = header_of(128, 128, "grok")
    assert "flash attention" in obstacle(header, KvType.Q8_0)


def test_a_model_without_attention_does_not_mind() -> None:
    data = tiny_gguf("mamba", {"mamba.block_count": 2, "mamba.embedding_length": 64})
    assert obstacle(read_header(data, len(data)), KvType.Q4_0) == ""
