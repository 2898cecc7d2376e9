"""The header reader: what it finds, and that nothing in a file can harm it."""

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.errors import ModelInvalid
from models.gguf import NeedMoreBytes, peek_header, read_file, read_header
from models.header import GgufHeader, Skipped
from tests.tinygguf import LLAMA, tiny_gguf

TINY = tiny_gguf(tokens=300)


def read(data: bytes) -> GgufHeader:
    return read_header(data, len(data), "tiny.gguf")


def patched(data: bytes, at: int, fresh: bytes) -> bytes:
    return data[:at] + fresh + data[at + len(fresh) :]


def look_at_everything(header: GgufHeader) -> None:
    """Every fact that is worked out from the metadata."""
    _ = header.quantization, header.parameter_count, header.kv_bytes_per_token
    _ = header.recurrent_bytes_per_sequence, header.is_mmproj, header.vocabulary_size
    _ = header.chat_template, header.licence, header.is_moe, header.split_count


def test_a_header_tells_the_models_facts() -> None:
    header = read(TINY)
    assert (header.version, header.architecture, header.name) == (3, "llama", "Tiny")
    assert (header.context_length, header.block_count, header.licence) == (4096, 2, "mit")
    assert header.quantization == "Q4_K_M"
    assert header.vocabulary_size == 300
    assert header.metadata["tokenizer.ggml.tokens"] == Skipped(300, "string")
    assert [t.shape for t in header.tensors] == [(64, 64), (64, 64)]
    assert header.tensors[0].offset == header.data_offset
    assert header.parameter_count == 2 * 64 * 64


def test_a_long_array_is_decoded_when_it_is_asked_for() -> None:
    header = read_header(TINY, len(TINY), keep=("tokenizer.ggml.tokens",))
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, tuple)
    assert tokens[299] == "t299"


def test_keys_and_values_take_two_bytes_an_element_for_each_kv_head() -> None:
    assert read(TINY).kv_bytes_per_token == 2 * 2 * 2 * (16 + 16)


def test_kv_heads_can_differ_by_layer() -> None:
    metadata = {**LLAMA, "llama.attention.head_count_kv": [4, 0]}
    assert read(tiny_gguf(metadata=metadata)).kv_bytes_per_token == 2 * 4 * (16 + 16)


@pytest.mark.parametrize(
    ("pattern", "windowed"),
    [
        (None, [True, True, True, True, True, False, True]),
        ([True, False, True, False, True, False, True], [True, False] * 3 + [True]),
        (2, [True, False, True, False, True, False, True]),
    ],
)
def test_a_sliding_window_covers_the_layers_of_its_pattern(
    pattern: Any, windowed: list[bool]
) -> None:
    metadata: dict[str, Any] = {
        "gemma3.block_count": 7,
        "gemma3.embedding_length": 64,
        "gemma3.attention.head_count": 4,
        "gemma3.attention.sliding_window": 512,
    }
    if pattern is not None:
        metadata["gemma3.attention.sliding_window_pattern"] = pattern
    header = read(tiny_gguf("gemma3", metadata))
    assert [layer.windowed for layer in header.layers()] == windowed


def test_a_recurrent_model_has_state_and_no_keys() -> None:
    metadata = {
        "mamba.block_count": 3,
        "mamba.embedding_length": 64,
        "mamba.ssm.conv_kernel": 4,
        "mamba.ssm.inner_size": 128,
        "mamba.ssm.state_size": 16,
        "mamba.attention.head_count": 0,
    }
    header = read(tiny_gguf("mamba", metadata))
    assert header.kv_bytes_per_token == 0
    assert header.recurrent_bytes_per_sequence == 3 * 4 * (3 * 128 + 128 * 16)


def test_without_a_file_type_the_heaviest_tensor_type_counts() -> None:
    metadata = {k: v for k, v in LLAMA.items() if k != "general.file_type"}
    assert read(tiny_gguf(metadata=metadata)).quantization == "F16"


def test_a_projector_is_told_by_its_architecture() -> None:
    assert read(tiny_gguf("clip", {})).is_mmproj
    assert not read(TINY).is_mmproj


def test_a_prefix_asks_for_more_bytes_until_the_header_is_whole() -> None:
    size, asked = 64, 0
    while size < len(TINY):
        try:
            header = read_header(TINY[:size], len(TINY))
        except NeedMoreBytes as more:
            size, asked = max(size + 1, more.needed), asked + 1
        else:
            break
    else:
        pytest.fail("the header was never whole")
    assert asked > 1
    assert header.tensors == read(TINY).tensors
    assert size <= header.data_offset


def test_a_peek_gives_the_metadata_that_came_before_the_end() -> None:
    header = peek_header(TINY[:600], len(TINY))
    assert (header.architecture, header.context_length) == ("llama", 4096)
    assert header.tensors == ()


def test_a_file_that_is_cut_short_names_the_tensor_and_both_sizes(tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    file.write_bytes(TINY[:-100])
    with pytest.raises(ModelInvalid) as caught:
        read_file(file)
    end = len(TINY)
    assert caught.value.message == (
        f"{file}: truncated: tensor 'blk.1.weight' ends at byte {end}, the file has {end - 100}"
    )


def test_a_missing_file_and_a_folder_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ModelInvalid, match="cannot be read: No such file"):
        read_file(tmp_path / "none.gguf")
    with pytest.raises(ModelInvalid, match="cannot be read: Is a directory"):
        read_file(tmp_path)


COUNT_AT, ENTRIES_AT = 8, 16


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a GGUF file"),
        (b"PK\x03\x04" + TINY[4:], "not a GGUF file"),
        (patched(TINY, 4, struct.pack("<I", 1)), "version 1"),
        (patched(TINY, 4, struct.pack(">I", 3)), "big-endian"),
        (patched(TINY, COUNT_AT, struct.pack("<Q", 1 << 40)), "claims 1099511627776 tensors"),
        (patched(TINY, ENTRIES_AT, struct.pack("<Q", 1 << 40)), "claims 1099511627776 metadata"),
        (patched(TINY, 24, struct.pack("<Q", 1 << 60)), "impossible length"),
        (TINY[:300], "truncated|more than its size can hold"),
        (TINY.replace(b"blk.1.weight", b"blk.0.weight"), "tensor 'blk.0.weight' occurs twice"),
        (tiny_gguf(metadata={**LLAMA, "general.alignment": 24}), "alignment 24 is no power of"),
    ],
)
def test_a_malformed_file_is_refused_in_one_line(data: bytes, why: str) -> None:
    with pytest.raises(ModelInvalid, match=why) as caught:
        read(data)
    assert caught.value.message.startswith("tiny.gguf: ")
    assert "\n" not in caught.value.message


def test_a_key_may_occur_once_only() -> None:
    doubled = tiny_gguf(metadata={"x.aa": 1, "x.bb": 2}).replace(b"x.bb", b"x.aa")
    with pytest.raises(ModelInvalid, match=r"'x\.aa' occurs twice"):
        read(doubled)


def test_a_tensor_of_unknown_type_or_shape_is_refused() -> None:
    at = TINY.index(b"blk.0.weight") + len(b"blk.0.weight")
    with pytest.raises(ModelInvalid, match="unknown type 250"):
        read(patched(TINY, at + 4 + 16, struct.pack("<I", 250)))
    with pytest.raises(ModelInvalid, match="has 9 dimensions"):
        read(patched(TINY, at, struct.pack("<I", 9)))
    with pytest.raises(ModelInvalid, match="impossible shape"):
        read(patched(TINY, at + 4, struct.pack("<QQ", 1 << 40, 1 << 40)))
    with pytest.raises(ModelInvalid, match="impossible shape"):
        read(patched(TINY, at + 4, struct.pack("<QQ", 0, 64)))
    with pytest.raises(ModelInvalid, match="not aligned"):
        read(patched(TINY, at + 4 + 16 + 4, struct.pack("<Q", 7)))


def test_arrays_nested_too_deeply_are_refused() -> None:
    nest = struct.pack("<IQ", 9, 1) * 5 + struct.pack("<IQ", 4, 0)
    entry = struct.pack("<Q", 1) + b"k" + struct.pack("<I", 9) + nest
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry
    with pytest.raises(ModelInvalid, match="nests arrays too deeply"):
        read(data)


@given(st.integers(0, len(TINY) - 1))
@settings(max_examples=300, deadline=None)
def test_any_truncation_is_refused_or_seen(length: int) -> None:
    with pytest.raises(ModelInvalid):
        read(TINY[:length])


HEAD = read(TINY).data_offset


@given(st.lists(st.tuples(st.integers(0, HEAD - 1), st.integers(0, 255)), min_size=1, max_size=12))
@example([(ENTRIES_AT, 255)])
@settings(max_examples=600, deadline=None)
def test_any_changed_bytes_give_a_header_or_a_refusal(changes: list[tuple[int, int]]) -> None:
    data = bytearray(TINY)
    for at, value in changes:
        data[at] = value
    with suppress(ModelInvalid):
        look_at_everything(read(bytes(data)))


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_any_bytes_after_the_magic_give_a_header_or_a_refusal(rest: bytes) -> None:
    with suppress(ModelInvalid):
        look_at_everything(read(b"GGUF\x03\x00\x00\x00" + rest))


def test_a_real_vocabulary_is_counted_without_being_decoded(smollm2_path: Path) -> None:
    header = read_file(smollm2_path)
    assert header.vocabulary_size == 49152
    assert (header.architecture, header.quantization) == ("llama", "Q4_1")
    assert header.parameter_count == 134_515_008
    assert header.kv_bytes_per_token == 30 * 3 * (64 + 64) * 2


def test_a_real_sliding_window_leaves_every_sixth_layer_whole(gemma3_path: Path) -> None:
    header = read_file(gemma3_path)
    assert (header.sliding_window, header.vocabulary_size) == (512, 262144)
    assert [i for i, layer in enumerate(header.layers()) if not layer.windowed] == [5, 11, 17]
