"""Deletes a model's files, and nothing that something else still needs."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from models.card import ModelCard
from models.errors import RequestInvalid
from models.starter import PACKAGE


def remove_own(models_dir: Path, card: ModelCard) -> int:
    """Delete files of our own folder."""
    if not card.path.is_relative_to(models_dir):
        raise RequestInvalid(
            f"{card.id} is part of the installed Python package {PACKAGE}: uninstall that.", "model"
        )
    freed = 0
    for path in card.files:
        freed += _delete(path)
        _delete_empty(path.parent, models_dir)
    return freed


def remove_from_hub(cache: Path, card: ModelCard) -> int:
    """Delete files of the Hugging Face cache: their names in every snapshot, and their contents."""
    folder = cache / card.path.relative_to(cache).parts[0]
    files = list(card.path.rglob("*")) if card.path.is_dir() else list(card.files)
    contents = {path.resolve() for path in files if path.is_file()}
    freed = 0
    for name in list(_names(folder)):
        if name.resolve() in contents or name in files:
            freed += 0 if name.is_symlink() else _delete(name)
            name.unlink(missing_ok=True)
            _delete_empty(name.parent, folder)
    kept = {name.resolve() for name in _names(folder)}
    for content in contents - kept:
        freed += _delete(content)
    if not kept:  # no snapshot is left: what remains are references to nothing
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir():
                with suppress(OSError):
                    path.rmdir()
            else:
                _delete(path)
        _delete_empty(folder, cache)
    return freed


def _names(folder: Path) -> Iterator[Path]:
    for path in (folder / "snapshots").rglob("*"):
        if path.is_symlink() or path.is_file():
            yield path


def _delete(path: Path) -> int:
    try:
        size = path.stat().st_size
        os.unlink(path)
    except OSError:
        return 0
    return size


def _delete_empty(folder: Path, stop: Path) -> None:
    """Remove `folder` and those above it, below `stop`, as long as they are empty."""
    while folder != stop and folder.is_relative_to(stop):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
