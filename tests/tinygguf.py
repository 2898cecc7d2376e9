"""Tiny GGUF files for tests that need a header, not a model that runs."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

LLAMA: dict[str, Any] = {
    "llama.block_count": 2,
    "llama.context_length": 4096,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "general.name": "Tiny",
    "general.license": "mit",
    "general.file_type": int(gguf.LlamaFileType.MOSTLY_Q4_K_M),
}


def tiny_gguf(
    arch: str = "llama",
    metadata: Mapping[str, Any] = LLAMA,
    *,
    tensors: int = 2,
    width: int = 64,
    tokens: int = 0,
) -> bytes:
    """The bytes of a file with `tensors` matrices of `width` x `width` half-precision numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        writer = gguf.GGUFWriter(path, arch)
        for key, value in metadata.items():
            _add(writer, key, value)
        if tokens:
            writer.add_token_list([f"t{index}" for index in range(tokens)])
        for index in range(tensors):
            seed = np.random.default_rng(index)
            values = seed.standard_normal((width, width)).astype(np.float16)
            writer.add_tensor(f"blk.{index}.weight", values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def shards(count: int) -> list[bytes]:
    """A model split into `count` files."""
    return [
        tiny_gguf(metadata={**LLAMA, "split.no": number, "split.count": count})
        for number in range(count)
    ]


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        writer.add_uint32(key, value)
