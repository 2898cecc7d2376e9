"""KV memory on disk: one checked file for each block or checkpoint, one folder for each model.

A file is written under a temporary name and renamed, so that a killed process leaves no half of
one; its checksum covers everything. Files of another version, of another model, cut short or
flipped are told apart from good ones and never used. Their time stamp is that of their last use.
"""

import contextlib
import hashlib
import json
import os
import re
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Key = bytes

KEY_BYTES = 16
SUFFIX = ".kv"
ABOUT = "about.json"
_MAGIC = b"RUNKV\x00\x00\x01"
# magic, model, key, parent, kind, end, tokens, payload bytes; then the checksum of all the rest
_FIXED = struct.Struct("<8s16s16s16sBIIQ")
_CHECK = struct.Struct("<I")
# What is ours has names like these; everything else in a folder is somebody's.
_FOLDER_NAME = re.compile(r"[0-9a-f]{32}")
_FILE_NAME = re.compile(r"[0-9a-f]{32}\.kv")
_HALF_NAME = re.compile(r"tmp.*\.tmp")


class Kind(IntEnum):
    """What a file holds: attention memory of some tokens, or the state at one position."""

    BLOCK = 0
    CHECKPOINT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored piece of memory. A block holds the attention memory of `tokens`, which end at
    position `end`, after those of the block `parent`. A checkpoint holds what memory knows at
    position `end` and cannot be cut (a window, recurrent state); it has no tokens of its own."""

    kind: Kind
    key: Key
    parent: Key
    tokens: Tokens
    end: int
    size: int


def block_key(parent: Key, tokens: Tokens) -> Key:
    """The name of a block: a hash over all tokens before it and its own."""
    return hashlib.sha256(parent + token_bytes(tokens)).digest()[:KEY_BYTES]


def token_bytes(tokens: Tokens) -> bytes:
    """Tokens as they are hashed and written, whatever their array looks like."""
    return tokens.astype("<i4", copy=False).tobytes()


def root_key(identity: str) -> Key:
    """The parent of first blocks: what the memory's content depends on besides the tokens."""
    return hashlib.sha256(identity.encode()).digest()[:KEY_BYTES]


class FileUnusable(Exception):
    """A file is not what its place says: cut short, flipped, of another version or model."""


# ---------------------------------------------------------------------- one file


def write_file(folder: Path, root: Key, entry: Entry, payload: bytes | memoryview) -> int:
    """Store an entry; returns the file's size. Raises OSError."""
    fixed = _FIXED.pack(
        _MAGIC, root, entry.key, entry.parent, entry.kind, entry.end, len(entry.tokens), entry.size
    )
    tokens = token_bytes(entry.tokens)
    check = _CHECK.pack(zlib.crc32(payload, zlib.crc32(tokens, zlib.crc32(fixed))))
    _write_whole(folder / file_name(entry.key), fixed, check, tokens, payload)
    return len(fixed) + len(check) + len(tokens) + entry.size


def _write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """All of a file or nothing, readable by its owner only."""
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def read_entry(path: Path, root: Key) -> Entry:
    """What a file says it holds, as far as that can be told without reading all of it. Raises
    FileUnusable, OSError."""
    with path.open("rb") as file:
        head = _read_head(file.read(_FIXED.size + _CHECK.size), root, path)
        if os.fstat(file.fileno()).st_size != head.start + head.size:
            raise FileUnusable("it was cut short")
        tokens = np.frombuffer(file.read(4 * head.count), "<i4").astype(np.int32)
    if head.kind is Kind.BLOCK and block_key(head.parent, tokens) != head.key:
        raise FileUnusable("its tokens are not those of its name")
    return Entry(head.kind, head.key, head.parent, tokens, head.end, head.size)


def read_payload(
    folder: Path, root: Key, entry: Entry, into: memoryview | None = None
) -> memoryview:
    """The memory an entry stands for, every byte checked; read `into` a buffer of its size, else
    into one of its own. Raises FileUnusable, OSError."""
    path = folder / file_name(entry.key)
    payload = into if into is not None else memoryview(bytearray(entry.size))
    with path.open("rb") as file:
        first = file.read(_FIXED.size + _CHECK.size)
        head = _read_head(first, root, path)
        if (head.kind, head.end, head.size) != (entry.kind, entry.end, entry.size):
            raise FileUnusable("it holds something else")
        tokens = file.read(4 * head.count)
        whole = file.readinto(payload) == head.size and not file.read(1)
    if len(tokens) != 4 * head.count or not whole:
        raise FileUnusable("its length is wrong")
    if zlib.crc32(payload, zlib.crc32(tokens, zlib.crc32(first[: _FIXED.size]))) != head.check:
        raise FileUnusable("its checksum is wrong")
    return payload


@dataclass(frozen=True, slots=True)
class _Head:
    kind: Kind
    key: Key
    parent: Key
    end: int
    count: int
    size: int
    check: int

    @property
    def start(self) -> int:
        """Where the payload begins."""
        return _FIXED.size + _CHECK.size + 4 * self.count


def _read_head(head: bytes, root: Key, path: Path) -> _Head:
    if len(head) < _FIXED.size + _CHECK.size:
        raise FileUnusable("it was cut short")
    fields: tuple[bytes, bytes, bytes, bytes, int, int, int, int] = _FIXED.unpack_from(head)
    magic, model, key, parent, kind, end, count, size = fields
    if magic != _MAGIC:
        raise FileUnusable("it is of another version")
    if model != root or file_name(key) != path.name or kind not in tuple(Kind):
        raise FileUnusable("it belongs to something else")
    if count > end:
        raise FileUnusable("it makes no sense")
    check = int.from_bytes(head[_FIXED.size : _FIXED.size + _CHECK.size], "little")
    return _Head(Kind(kind), key, parent, end, count, size, check)


def file_name(key: Key) -> str:
    return key.hex() + SUFFIX


# ---------------------------------------------------------------------- folders


def open_folder(top: Path, root: Key, about: dict[str, str]) -> Path:
    """The folder of one model's files, made if it is not there. Raises OSError."""
    folder = top / root.hex()
    for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    note = folder / ABOUT
    if not note.exists():
        _write_whole(note, json.dumps(about).encode())
    return folder


def scan(folder: Path, root: Key) -> Iterator[Entry]:
    """Every usable file of a model's folder; the others are removed."""
    for item in _files(folder):
        try:
            yield read_entry(Path(item.path), root)
        except FileUnusable:
            with contextlib.suppress(OSError):
                Path(item.path).unlink()
        except OSError:
            continue


def _files(folder: Path, name: re.Pattern[str] = _FILE_NAME) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as items:
            return [i for i in items if name.fullmatch(i.name) and i.is_file()]
    except OSError:
        return []


def keys(folder: Path) -> set[Key]:
    """What a model's folder has files of."""
    return {bytes.fromhex(item.name.removesuffix(SUFFIX)) for item in _files(folder)}


@dataclass(frozen=True, slots=True)
class FolderUse:
    """What one model's folder takes. `about` is what was noted when it was made."""

    folder: Path
    about: dict[str, str]
    files: int
    size: int
    last_used: float


def usage(top: Path) -> list[FolderUse]:
    """What the cache holds, by model; the largest first."""
    found: list[FolderUse] = []
    for folder in _folders(top):
        stats = _stats(folder)
        try:
            about = {str(k): str(v) for k, v in json.loads((folder / ABOUT).read_text()).items()}
        except (OSError, ValueError, AttributeError):
            about = {}
        total = sum(size for _, size, _ in stats)
        found.append(
            FolderUse(folder, about, len(stats), total, max((t for *_, t in stats), default=0.0))
        )
    return sorted(found, key=lambda use: -use.size)


def _folders(top: Path) -> list[Path]:
    try:
        return [p for p in top.iterdir() if _FOLDER_NAME.fullmatch(p.name) and p.is_dir()]
    except OSError:
        return []


def _stats(folder: Path) -> list[tuple[Path, int, float]]:
    out: list[tuple[Path, int, float]] = []
    for item in _files(folder):
        with contextlib.suppress(OSError):
            stat = item.stat()
            out.append((Path(item.path), stat.st_size, stat.st_mtime))
    return out


def prune(top: Path, budget: int, retention_s: float, now: float | None = None) -> int:
    """Remove what was not used for `retention_s`, then the longest unused until all models' files
    together take `budget` bytes at most, and what killed writers left. Returns how many files."""
    now = time.time() if now is None else now
    removed = 0
    kept: list[tuple[float, int, Path]] = []
    for folder in _folders(top):
        for path, size, used in _stats(folder):
            if now - used > retention_s:
                removed += _remove(path)
            else:
                kept.append((used, size, path))
        for left in _files(folder, _HALF_NAME):
            with contextlib.suppress(OSError):
                if now - left.stat().st_mtime > 3600:
                    Path(left.path).unlink()
    total = sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept, key=lambda item: item[:2]):
        if total <= budget:
            break
        removed += _remove(path)
        total -= size
    return removed


def purge(folder: Path) -> None:
    """Remove a model's files, and its folder unless something else is in it. Raises OSError."""
    items = [Path(item.path) for item in _files(folder) + _files(folder, _HALF_NAME)]
    for item in (*items, folder / ABOUT):
        item.unlink(missing_ok=True)  # a running server removes and writes at the same time
    with contextlib.suppress(OSError):
        folder.rmdir()


def _remove(path: Path) -> int:
    try:
        path.unlink()
    except OSError:
        return 0
    return 1
