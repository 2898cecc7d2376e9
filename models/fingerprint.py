"""What tells one model's content from another's, without reading all of it."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

_EDGE = 1 << 20


def fingerprint(files: Sequence[Path]) -> str:
    """A hash over each file's size, first and last megabyte: a GGUF's metadata and tensor table lie
    in the first. Names and times do not count, so a moved model keeps its cache. Raises OSError."""
    hashed = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        hashed.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            hashed.update(file.read(_EDGE))
            file.seek(max(0, size - _EDGE))
            hashed.update(file.read(_EDGE))
    return hashed.hexdigest()
