"""The cache that huggingface_hub and its friends share: one repository's corner of it.

blobs/ holds contents by checksum, snapshots/<commit>/ the names that point at them, refs/ the
commits. A snapshot's names are made only once all contents are there, so whoever looks finds whole
models.
"""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from models.choice import HubFile

PARTIAL = ".partial"  # huggingface_hub's own unfinished files end in .incomplete; ours are apart


@dataclass(frozen=True, slots=True)
class RepoCache:
    """Where one model repository's files are kept."""

    cache_dir: Path
    repo: str

    @property
    def folder(self) -> Path:
        return self.cache_dir / f"models--{self.repo.replace('/', '--')}"

    def blob(self, file: HubFile) -> Path:
        return self.folder / "blobs" / file.key

    def partial(self, file: HubFile) -> Path:
        return self.folder / "blobs" / f"{file.key}{PARTIAL}"

    def named(self, commit: str, file: HubFile) -> Path:
        """The path under which a file of a snapshot is opened."""
        return self.folder / "snapshots" / commit / file.path

    def has(self, file: HubFile) -> bool:
        """Whether the whole content is here. It was checked before it got its name."""
        return _size(self.blob(file)) == file.size

    def complete(self, commit: str, files: tuple[HubFile, ...]) -> bool:
        """Whether the snapshot has all of `files`."""
        return all(_size(self.named(commit, file)) == file.size for file in files)

    def missing_bytes(self, files: tuple[HubFile, ...]) -> int:
        """What is still to be fetched of `files`."""
        return sum(
            max(0, file.size - (_size(self.partial(file)) or 0))
            for file in files
            if not self.has(file)
        )

    @contextmanager
    def locked(self, file: HubFile) -> Generator[None]:
        """Hold the lock that huggingface_hub takes for the same content."""
        from huggingface_hub.utils import WeakFileLock

        lock = self.cache_dir / ".locks" / self.folder.name / f"{file.key}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            yield

    def publish(self, commit: str, files: tuple[HubFile, ...], revision: str) -> None:
        """Name the contents of `files` in the snapshot, the revision last."""
        for file in files:
            _link(self.blob(file), self.named(commit, file))
        if revision and revision != commit:
            ref = self.folder / "refs" / revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            _replace_text(ref, commit)


def _link(blob: Path, name: Path) -> None:
    """Make `name` stand for `blob`: by a relative link, a hard link or a copy, whatever works."""
    name.parent.mkdir(parents=True, exist_ok=True)
    fresh = name.with_name(f".{name.name}.{os.getpid()}.tmp")
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(os.path.relpath(blob, name.parent))
    except OSError:
        try:
            fresh.hardlink_to(blob)
        except OSError:
            shutil.copy2(blob, fresh)
    try:
        fresh.replace(name)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


def _replace_text(file: Path, text: str) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    fresh.write_text(text)
    fresh.replace(file)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
