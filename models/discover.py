"""Finds model files where programs put them, without copying anything."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models import starter
from models.card import Origin
from models.choice import HubFile, variants

_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_HUB = "registry.ollama.ai"
_MAX_MANIFEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that are looked into; those that do not exist are passed over."""

    hub: Path
    ollama: tuple[Path, ...]
    lm_studio: tuple[Path, ...]
    llama_cpp: Path


@dataclass(frozen=True, slots=True)
class Candidate:
    """Files that may be a model. `name` is its id, or the id without quantization where
    `is_tagged`; `hint` the quantization that the file's name tells."""

    name: str
    files: tuple[Path, ...]
    origin: Origin
    is_tagged: bool = False
    hint: str = ""
    missing: tuple[str, ...] = ()
    problem: str = ""


def usual_places() -> Places:
    """Each program's own folder, by its own variables."""
    from models.address import from_environment

    home = Path.home()
    named = os.environ.get("OLLAMA_MODELS")
    ollama = (Path(named),) if named else (home / ".ollama/models", _OLLAMA_SERVICE)
    caches = home / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or caches)
    return Places(
        hub=from_environment().cache_dir,
        ollama=ollama,
        lm_studio=(home / ".lmstudio/models", home / ".cache/lm-studio/models"),
        llama_cpp=Path(os.environ.get("LLAMA_CACHE") or caches / "llama.cpp"),
    )


_OLLAMA_SERVICE = Path("/usr/share/ollama/.ollama/models")  # where its Linux service keeps them


def gguf_candidates(models_dir: Path, places: Places) -> Iterator[Candidate]:
    """Everything that looks like a GGUF model, the places we write to first."""
    yield from _starter(models_dir)
    yield from _ours(models_dir)
    yield from _hub(places.hub)
    for folder in places.ollama:
        yield from _ollama(folder)
    for folder in places.lm_studio:
        for publisher in _folders(folder):
            for repo in _folders(publisher):
                label = f"lm-studio/{publisher.name}/{repo.name}"
                yield from _in_folder(repo, label, Origin.LM_STUDIO)
    for candidate in _in_folder(places.llama_cpp, "", Origin.LLAMA_CPP, deep=False):
        stem = candidate.files[0].name.removesuffix(".gguf")
        yield Candidate(
            f"llama.cpp/{stem}", candidate.files, Origin.LLAMA_CPP, missing=candidate.missing
        )


def hub_snapshots(cache: Path) -> Iterator[tuple[str, Path]]:
    """(repository, snapshot folder) of every model in a Hugging Face cache, the one that `main`
    names first."""
    for folder in _folders(cache):
        if not folder.name.startswith("models--"):
            continue
        repo = folder.name.removeprefix("models--").replace("--", "/")
        main = ""
        with suppress(OSError):
            main = (folder / "refs" / "main").read_text().strip()
        snapshots = _folders(folder / "snapshots")
        for snapshot in sorted(snapshots, key=lambda path: path.name != main):
            yield repo, snapshot


def in_path(path: Path, origin: Origin = Origin.PATH) -> list[Candidate]:
    """The models in a folder, or the model that a file belongs to, under their full paths."""
    folder = path if path.is_dir() else path.parent
    found = list(_in_folder(folder, "", origin, deep=False))
    if path.is_file():
        found = [c for c in found if path in c.files] or [Candidate(str(path), (path,), origin)]
    return [
        Candidate(str(c.files[0]), c.files, origin, missing=c.missing, hint=c.hint) for c in found
    ]


def _starter(models_dir: Path) -> Iterator[Candidate]:
    for path in (starter.stored_at(models_dir), starter.packaged()):
        if path is not None and path.is_file():
            yield Candidate(starter.NAME, (path,), Origin.RUNNER)
            return


def _ours(models_dir: Path) -> Iterator[Candidate]:
    for candidate in _in_folder(models_dir, "", Origin.RUNNER):
        stem = candidate.files[0].name.removesuffix(".gguf")
        yield Candidate(stem, candidate.files, Origin.RUNNER, missing=candidate.missing)


def _hub(cache: Path) -> Iterator[Candidate]:
    """Each file once: an older snapshot's is hidden by the newer one of the same name."""
    seen: set[tuple[str, str]] = set()
    for repo, snapshot in hub_snapshots(cache):
        for candidate in _in_folder(snapshot, repo, Origin.HUB):
            name = (repo, candidate.files[0].relative_to(snapshot).as_posix())
            if name not in seen:
                seen.add(name)
                yield candidate


def _in_folder(
    folder: Path, name: str, origin: Origin, *, deep: bool = True
) -> Iterator[Candidate]:
    pattern = "**/*.gguf" if deep else "*.gguf"
    try:  # a link whose content is gone is no file
        paths = [path.relative_to(folder) for path in folder.glob(pattern) if path.is_file()]
    except OSError:
        return  # not ours to read
    # Hidden folders hold what is not finished yet.
    shown = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    files = [HubFile(path.as_posix(), 0) for path in shown]
    for variant in variants(files):
        yield Candidate(
            name=name,
            files=tuple(folder / file.path for file in variant.files),
            origin=origin,
            is_tagged=True,
            hint=variant.quantization,
            missing=variant.missing,
        )


def _ollama(models: Path) -> Iterator[Candidate]:
    manifests = models / "manifests"
    try:
        files = [path for path in manifests.glob("*/**/*") if path.is_file()]
    except OSError:
        return
    for file in sorted(files):
        parts = file.relative_to(manifests).parts
        if len(parts) < 3 or file.name.startswith("."):
            continue
        *path, model, tag = parts
        path = [part for part in path if part not in (_OLLAMA_HUB, "library")]
        name = "/".join(("ollama", *path, f"{model}:{tag}"))
        try:
            yield Candidate(name, _ollama_blobs(models, file), Origin.OLLAMA)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            problem = f"{file}: not an Ollama manifest"
            yield Candidate(name, (file,), Origin.OLLAMA, problem=problem)


def _ollama_blobs(models: Path, manifest: Path) -> tuple[Path, ...]:
    if manifest.stat().st_size > _MAX_MANIFEST:
        raise ValueError
    listed: Any = json.loads(manifest.read_text())
    digests = [
        str(layer["digest"])
        for layer in listed["layers"]
        if layer.get("mediaType") == _OLLAMA_MODEL
    ]
    if not digests or any("/" in digest or "\\" in digest for digest in digests):
        raise ValueError
    return tuple(models / "blobs" / digest.replace(":", "-") for digest in digests)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
