"""What tells one model's content from another's, without reading all of it."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

_EDGE = 1 << 20
# Between the edges so many samples of this size are read, evenly spread.
_SAMPLES = 256
_SAMPLE = 1 << 14


def fingerprint(files: Sequence[Path]) -> str:
    """A hash over each file's size, time of change, first and last megabyte (a GGUF's metadata and
    tensor table lie in the first), and samples in between. The time tells of a change that falls
    between samples; a model moved within a file system keeps it. Raises OSError."""
    hashed = hashlib.sha256()
    for path in files:
        stat = path.stat()
        hashed.update(stat.st_size.to_bytes(8, "little") + stat.st_mtime_ns.to_bytes(16, "little"))
        with path.open("rb") as file:
            hashed.update(file.read(_EDGE))
            for sample in range(_SAMPLES):
                file.seek(sample * stat.st_size // _SAMPLES)
                hashed.update(file.read(_SAMPLE))
            file.seek(max(0, stat.st_size - _EDGE))
            hashed.update(file.read(_EDGE))
    return hashed.hexdigest()
