"""What a listing needs of each file's header, remembered until the file changes.

Reading one header takes 10 to 30 ms, most of it stepping over the vocabulary; a disk of fifty
models would take a second. So what was read is kept in one small file, too.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.dialects.choose import thinks
from models.errors import ModelInvalid
from models.gguf import read_file

_FORM = 3  # changes with the fields below
_MOST = 5000


@dataclass(frozen=True, slots=True)
class Facts:
    """The part of a header that naming and listing need; `problem` says why it cannot be used."""

    architecture: str = ""
    quantization: str = ""
    context_length: int = 0
    num_tensors: int = 0
    split_no: int = 0
    split_count: int = 1
    is_mmproj: bool = False
    thinks: bool = False
    writes: bool = True
    embeds: bool = False
    problem: str = ""


class FactsBook:
    """Facts by file, in memory and, where `file` is given, on disk."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._facts: dict[str, tuple[int, int, Facts]] = _load(file) if file else {}
        self._changed = False

    def of(self, path: Path) -> Facts:
        """The facts of a GGUF file. Raises ModelInvalid."""
        facts = self._known_or_read(path)
        if facts.problem:
            raise ModelInvalid(facts.problem)
        return facts

    def save(self) -> None:
        """Keep what was read for the next process, if that is possible."""
        if not self._changed or self._file is None:
            return
        self._changed = False
        known = list(self._facts.items())  # another thread may be reading headers
        rows = {path: [size, at, asdict(facts)] for path, (size, at, facts) in known}
        fresh = self._file.with_name(f"{self._file.name}.{os.getpid()}.tmp")
        with suppress(OSError):  # a folder we may not write to costs time only
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(json.dumps({"form": _FORM, "files": rows}))
            fresh.replace(self._file)

    def _known_or_read(self, path: Path) -> Facts:
        try:
            stat = path.stat()
        except OSError as error:
            raise ModelInvalid(f"{path}: cannot be read: {error.strerror or error}") from error
        key = str(path)
        known = self._facts.get(key)
        if known and known[:2] == (stat.st_size, stat.st_mtime_ns):
            return known[2]
        facts = _read(path)
        if len(self._facts) >= _MOST:
            self._facts.clear()
        self._facts[key] = (stat.st_size, stat.st_mtime_ns, facts)
        self._changed = True
        return facts


def _read(path: Path) -> Facts:
    try:
        header = read_file(path)
    except ModelInvalid as error:
        return Facts(problem=error.message)
    return Facts(
        architecture=header.architecture,
        quantization=header.quantization,
        context_length=header.context_length,
        num_tensors=len(header.tensors),
        split_no=header.split_no,
        split_count=header.split_count,
        is_mmproj=header.is_mmproj,
        thinks=thinks(header.chat_template),
        writes=header.writes,
        embeds=header.embeds,
    )


def _load(file: Path) -> dict[str, tuple[int, int, Facts]]:
    """What an earlier process kept; nothing where that cannot be read."""
    try:
        kept: Any = json.loads(file.read_text())
        if kept["form"] != _FORM:
            return {}
        return {
            str(path): (int(size), int(at), Facts(**facts))
            for path, (size, at, facts) in kept["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
