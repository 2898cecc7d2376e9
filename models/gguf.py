"""Reads GGUF headers, from a file or from its first bytes, trusting nothing in them.

Our own, since the gguf package maps whole files and cannot read a header that came by a range
request. Its tables of value types and quantization sizes are used.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from models.errors import ModelInvalid
from models.header import GgufHeader, GgufTensor, Skipped, Value

__all__ = ["GgufHeader", "NeedMoreBytes", "peek_header", "read_file", "read_header"]

_FIRST_READ = 8 << 20  # holds most headers whole; a vocabulary of 262k takes about 6 MB
_MAX_ENTRIES = 1 << 20
_MAX_DIMS = 4
_MAX_DEPTH = 4
_MAX_NAME = 65535
_KEEP_SCALARS = 4096  # longer arrays belong to the tokenizer
_KEEP_STRINGS = 256
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: ("uint8", struct.Struct("<B")),
    1: ("int8", struct.Struct("<b")),
    2: ("uint16", struct.Struct("<H")),
    3: ("int16", struct.Struct("<h")),
    4: ("uint32", struct.Struct("<I")),
    5: ("int32", struct.Struct("<i")),
    6: ("float32", struct.Struct("<f")),
    7: ("bool", struct.Struct("<?")),
    10: ("uint64", struct.Struct("<Q")),
    11: ("int64", struct.Struct("<q")),
    12: ("float64", struct.Struct("<d")),
}
_U32, _U64 = _SCALARS[4][1], _SCALARS[10][1]


class NeedMoreBytes(Exception):
    """The header goes on after the bytes that were given; at least `needed` are wanted."""

    def __init__(self, needed: int) -> None:
        super().__init__(f"the header needs at least {needed} bytes")
        self.needed = needed


def read_file(path: Path, keep: Collection[str] = ()) -> GgufHeader:
    """The header of the file at `path`. Raises ModelInvalid."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            data = file.read(_FIRST_READ)
            while True:
                try:
                    return read_header(data, size, str(path), keep)
                except NeedMoreBytes as more:
                    wanted = max(more.needed, 2 * len(data)) - len(data)
                    piece = file.read(wanted)
                    if not piece:  # the file shrank while we read it
                        raise ModelInvalid(f"{path}: the file ends early") from None
                    data += piece
    except OSError as error:
        raise ModelInvalid(f"{path}: cannot be read: {error.strerror or error}") from error


def read_header(
    data: bytes, file_size: int, label: str = "GGUF", keep: Collection[str] = ()
) -> GgufHeader:
    """The header at the start of `data`, the first bytes of a file of `file_size` bytes.

    Long arrays are stepped over unless `keep` names their key. Raises ModelInvalid where the file
    cannot be right whatever follows, and NeedMoreBytes where `data` ends too soon."""
    return _Parser(data, file_size, label, keep).header()


def peek_header(data: bytes, file_size: int, label: str = "GGUF") -> GgufHeader:
    """What the first bytes tell already: the metadata up to where `data` ends, and no tensors
    unless all of them are there. Raises ModelInvalid, or NeedMoreBytes before any metadata."""
    parser = _Parser(data, file_size, label, ())
    try:
        return parser.header()
    except NeedMoreBytes:
        if not parser.metadata:
            raise
        return GgufHeader(label, parser.version, parser.metadata, (), 0, 32, file_size)


@dataclass(slots=True)
class _Parser:
    """One pass over a header; `pos` is the next byte."""

    data: bytes
    file_size: int
    label: str
    keep: Collection[str]
    pos: int = 0
    version: int = 0
    metadata: dict[str, Value] = field(default_factory=dict[str, Value])

    def header(self) -> GgufHeader:
        tensor_count, entry_count = self._preamble()
        for _ in range(entry_count):
            self._entry()
        alignment = self._alignment()
        infos = [self._tensor_info() for _ in range(tensor_count)]
        start = -(-self.pos // alignment) * alignment
        if infos and start > self.file_size:
            self._truncated("the tensor data", start)
        tensors = tuple(self._placed(info, start, alignment) for info in infos)
        seen: set[str] = set()
        for tensor in tensors:
            if tensor.name in seen:
                self._fail(f"tensor {tensor.name!r} occurs twice")
            seen.add(tensor.name)
        return GgufHeader(
            self.label, self.version, self.metadata, tensors, start, alignment, self.file_size
        )

    def _preamble(self) -> tuple[int, int]:
        if self.data[:4] != b"GGUF"[: len(self.data)] or self.file_size < 4:
            self._fail("not a GGUF file (it does not begin with the letters GGUF)")
        self.pos = 4
        self.version = self._u32("the version")
        if self.version not in (2, 3):
            if self.version & 0xFFFF == 0 and self.version:
                self._fail("a big-endian GGUF file, which this machine cannot run")
            self._fail(f"GGUF version {self.version}, and only 2 and 3 are known")
        tensor_count, entry_count = self._u64("the tensor count"), self._u64("the entry count")
        # The least that one takes: a tensor 8 + 1 + 4 + 8 + 4 + 8 bytes, an entry 8 + 1 + 4 + 1.
        left = self.file_size - self.pos
        if tensor_count > min(_MAX_ENTRIES, left // 32):
            self._fail(f"it claims {tensor_count} tensors, more than its size can hold")
        if entry_count > min(_MAX_ENTRIES, left // 13):
            self._fail(f"it claims {entry_count} metadata entries, more than its size can hold")
        return tensor_count, entry_count

    def _entry(self) -> None:
        key = self._name("a metadata key")
        if key in self.metadata:
            self._fail(f"metadata key {key!r} occurs twice")
        self.metadata[key] = self._value(key, self._u32(f"the type of {key!r}"), 0)

    def _value(self, key: str, kind: int, depth: int) -> Value:
        if kind == _STRING:
            return self._string(f"the value of {key!r}").decode("utf-8", "replace")
        if kind == _ARRAY:
            return self._array(key, depth + 1)
        if kind not in _SCALARS:
            self._fail(f"metadata key {key!r} has the unknown value type {kind}")
        form = _SCALARS[kind][1]
        if kind == 7:  # a bool is a byte, and only 0 and 1 are one
            at = self._advance(1, f"the value of {key!r}")
            return self.data[at] != 0
        return form.unpack_from(self.data, self._advance(form.size, f"the value of {key!r}"))[0]

    def _array(self, key: str, depth: int) -> Value:
        if depth > _MAX_DEPTH:
            self._fail(f"metadata key {key!r} nests arrays too deeply")
        kind, count = self._u32(f"the type of {key!r}"), self._u64(f"the length of {key!r}")
        kept = key in self.keep
        if kind == _STRING:
            self._holds(key, count, 8)
            if kept or count <= _KEEP_STRINGS:
                return tuple(self._value(key, kind, depth) for _ in range(count))
            self._step_over_strings(key, count)
            return Skipped(count, "string")
        if kind == _ARRAY:
            self._holds(key, count, 12)
            if count > _KEEP_SCALARS:
                self._fail(f"metadata key {key!r} holds {count} arrays, which no model needs")
            return tuple(self._value(key, kind, depth) for _ in range(count))
        if kind not in _SCALARS:
            self._fail(f"metadata key {key!r} has the unknown element type {kind}")
        name, form = _SCALARS[kind]
        self._holds(key, count, form.size)
        at = self._advance(count * form.size, f"the value of {key!r}")
        if not kept and count > _KEEP_SCALARS:
            return Skipped(count, name)
        return struct.unpack_from(f"<{count}{form.format[-1]}", self.data, at)

    def _step_over_strings(self, key: str, count: int) -> None:
        """The hot loop: a vocabulary has 100,000s of strings, and only their lengths are read."""
        data, pos, length = self.data, self.pos, _U64.unpack_from
        try:
            for _ in range(count):
                pos += 8 + length(data, pos)[0]
        except (struct.error, OverflowError, IndexError):
            pos += 8
        if pos > self.file_size:
            self._truncated(f"the value of {key!r}", pos)
        if pos > len(data):
            raise NeedMoreBytes(pos)
        self.pos = pos

    def _tensor_info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._name("a tensor's name")
        num_dims = self._u32(f"the dimensions of tensor {name!r}")
        if not 1 <= num_dims <= _MAX_DIMS:
            self._fail(f"tensor {name!r} has {num_dims} dimensions")
        shape = tuple(self._u64(f"the shape of tensor {name!r}") for _ in range(num_dims))
        total = 1
        for extent in shape:
            total *= extent
        if not 0 < total < 1 << 62:
            self._fail(f"tensor {name!r} has the impossible shape {list(shape)}")
        kind = self._u32(f"the type of tensor {name!r}")
        return name, shape, kind, self._u64(f"the offset of tensor {name!r}")

    def _placed(
        self, info: tuple[str, tuple[int, ...], int, int], start: int, alignment: int
    ) -> GgufTensor:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        name, shape, kind, offset = info
        try:
            quantization = GGMLQuantizationType(kind)
            block, block_bytes = GGML_QUANT_SIZES[quantization]
        except (ValueError, KeyError):
            self._fail(f"tensor {name!r} has the unknown type {kind}")
        if shape[0] % block:
            self._fail(f"tensor {name!r} has rows of {shape[0]}, no multiple of {block}")
        total = 1
        for extent in shape:
            total *= extent
        if offset % alignment:
            self._fail(f"tensor {name!r} is at {offset}, not aligned to {alignment} bytes")
        num_bytes = total // block * block_bytes
        if start + offset + num_bytes > self.file_size:
            self._truncated(f"tensor {name!r}", start + offset + num_bytes)
        return GgufTensor(name, shape, quantization.name, start + offset, num_bytes)

    def _alignment(self) -> int:
        value = self.metadata.get("general.alignment", 32)
        if not isinstance(value, int) or not 0 < value <= 1 << 20 or value & (value - 1):
            self._fail(f"the alignment {value!r} is no power of two")
        return value

    def _name(self, what: str) -> str:
        raw = self._string(what, _MAX_NAME)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._fail(f"{what} at byte {self.pos - len(raw)} is not UTF-8")

    def _string(self, what: str, limit: int = 1 << 40) -> bytes:
        length = self._u64(f"the length of {what}")
        if length > limit:
            self._fail(f"{what} at byte {self.pos} has the impossible length {length}")
        at = self._advance(length, what)
        return bytes(self.data[at : at + length])

    def _holds(self, key: str, count: int, width: int) -> None:
        if count * width > self.file_size - self.pos:
            self._truncated(f"the value of {key!r}", self.pos + count * width)

    def _u32(self, what: str) -> int:
        return _U32.unpack_from(self.data, self._advance(4, what))[0]

    def _u64(self, what: str) -> int:
        return _U64.unpack_from(self.data, self._advance(8, what))[0]

    def _advance(self, num_bytes: int, what: str) -> int:
        """Where the next `num_bytes` begin; they are all there."""
        at, end = self.pos, self.pos + num_bytes
        if end > self.file_size:
            self._truncated(what, end)
        if end > len(self.data):
            raise NeedMoreBytes(end)
        self.pos = end
        return at

    def _truncated(self, what: str, end: int) -> NoReturn:
        self._fail(f"truncated: {what} ends at byte {end}, the file has {self.file_size}")

    def _fail(self, why: str) -> NoReturn:
        raise ModelInvalid(f"{self.label}: {why}")
