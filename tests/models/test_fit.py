"""What a model needs, and which context fits."""

from pathlib import Path
from typing import Any

import pytest

from models.fit import (
    IDLE_SEQUENCES,
    IDLE_STATES,
    Memory,
    estimate,
    human_bytes,
    kept_sequences,
    largest_context,
    machine_memory,
    sentence,
)
from models.gguf import read_header
from models.header import GgufHeader
from models.kv import KvType
from tests.tinygguf import LLAMA, tiny_gguf

GB = 10**9


def header_of(arch: str = "llama", **changes: Any) -> GgufHeader:
    metadata = {**LLAMA, **{f"llama.{key}": value for key, value in changes.items()}}
    data = tiny_gguf(
        arch, {key.replace("llama.", f"{arch}."): value for key, value in metadata.items()}
    )
    return read_header(data, len(data))


def test_the_cache_grows_with_its_cells_and_what_each_takes() -> None:
    header = header_of()
    one = estimate(header, 1024).kv
    assert one == 1024 * header.kv_bytes_per_token
    assert estimate(header, 2048).kv == 2 * one
    assert estimate(header, 1024, kv_type=KvType.Q8_0).kv == one * 17 // 32
    assert estimate(header, 1024, kv_type=KvType.Q4_0).kv == one * 9 // 32


def test_weights_are_those_of_all_files_of_a_split() -> None:
    header = header_of()
    assert estimate(header, 512).weights == header.file_size
    assert estimate(header, 512, weights_bytes=7 * GB).weights == 7 * GB


def test_windowed_layers_stop_growing() -> None:
    metadata = {
        "gemma3.block_count": 6,
        "gemma3.embedding_length": 64,
        "gemma3.attention.head_count": 4,
        "gemma3.attention.sliding_window": 128,
    }
    data = tiny_gguf("gemma3", metadata)
    header = read_header(data, len(data))
    layer = header.kv_bytes_per_token // 6
    short, long = (estimate(header, c, sequences=1).kv for c in (1024, 8192))
    assert short == layer * (1024 + 5 * 768)  # five layers of 128 + 512 cells, rounded up
    assert long - short == layer * (8192 - 1024)


def test_a_window_that_is_kept_whole_grows_with_the_cells() -> None:
    metadata = {
        "gemma3.block_count": 6,
        "gemma3.embedding_length": 64,
        "gemma3.attention.head_count": 4,
        "gemma3.attention.sliding_window": 128,
    }
    data = tiny_gguf("gemma3", metadata, tokens=100)
    header = read_header(data, len(data))
    part = estimate(header, 8192, sequences=4)
    whole = estimate(header, 8192, sequences=4, full_window=True)
    assert whole.kv == 8192 * header.kv_bytes_per_token > part.kv
    # A second id for each sequence wants rows of logits, too.
    assert (part.outputs, whole.outputs) == (5 * 100 * 4, 9 * 100 * 4)


def test_logits_and_recurrent_state_count_for_each_sequence() -> None:
    data = tiny_gguf(tokens=1000)
    header = read_header(data, len(data))
    four, eight = (estimate(header, 512, sequences=n) for n in (4, 8))
    assert (four.outputs, eight.outputs) == (5 * 1000 * 4, 9 * 1000 * 4)
    assert eight.compute - four.compute == 4 * 1000 * 4
    metadata = {
        "mamba.block_count": 2,
        "mamba.embedding_length": 64,
        "mamba.ssm.inner_size": 128,
        "mamba.ssm.state_size": 16,
        "mamba.ssm.conv_kernel": 4,
    }
    data = tiny_gguf("mamba", metadata)
    header = read_header(data, len(data))
    assert estimate(header, 512, sequences=5).state == 6 * header.recurrent_bytes_per_sequence > 0
    assert kept_sequences(header, 3) == 3 + IDLE_STATES
    assert kept_sequences(header_of(), 3) == 3 + IDLE_SEQUENCES


def test_the_largest_context_fits_and_a_longer_one_does_not() -> None:
    header = header_of(context_length=131072, block_count=32, embedding_length=4096)
    budget = 2 * GB
    context = largest_context(header, budget)
    assert 512 < context < 131072
    assert context % 256 == 0
    assert estimate(header, context).total <= budget < estimate(header, context + 512).total


def test_the_largest_context_is_never_more_than_the_trained_one() -> None:
    assert largest_context(header_of(), 100 * GB) == 4096


def test_what_cannot_fit_has_no_context() -> None:
    assert largest_context(header_of(), 10**6) == 0


def test_the_sentence_says_what_fits() -> None:
    header = header_of(context_length=131072, block_count=32, embedding_length=4096)
    assert "whole context of 131,072 tokens" in sentence(header, Memory(900 * GB, 900 * GB))
    assert "of its 131,072 tokens" in sentence(header, Memory(2 * GB, 2 * GB))
    refused = sentence(header, Memory(GB, GB), weights_bytes=5 * GB)
    assert refused.startswith("does not fit: it needs about 5.")
    assert refused.endswith("1.0 GB of memory are free")


def test_an_unknown_context_length_counts_as_a_short_one() -> None:
    assert largest_context(header_of(context_length=0), 100 * GB) == 4096


@pytest.mark.parametrize(
    ("files", "total", "available"),
    [
        ({"memory.max": "1000000", "memory.current": "400000"}, 1_000_000, 600_000),
        ({"memory.max": "max", "memory.current": "400000"}, None, None),
        (
            {
                "memory.max": "1000000",
                "memory.current": "900000",
                "memory.stat": "inactive_file 300000\nactive_file 100000",
            },
            1_000_000,
            500_000,
        ),
        (
            {
                "memory/memory.limit_in_bytes": "2000000",
                "memory/memory.usage_in_bytes": "500000",
            },
            2_000_000,
            1_500_000,
        ),
        ({"memory/memory.limit_in_bytes": str(1 << 63)}, None, None),
    ],
)
def test_a_containers_limit_counts_as_the_machines(
    tmp_path: Path, files: dict[str, str], total: int | None, available: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    free, whole = machine_memory(tmp_path), machine_memory(tmp_path / "none")
    assert free.total == (total or whole.total)
    if available is None:
        assert free.available > 10_000_000
    else:
        assert free.available == available


def test_sizes_are_written_in_powers_of_a_thousand() -> None:
    sizes = [human_bytes(n) for n in (0, 999, 98_362_432, 4_920_000_000, 162 * GB)]
    assert sizes == ["0 B", "999 B", "98 MB", "4.9 GB", "162 GB"]
