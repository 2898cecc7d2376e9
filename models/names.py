"""What people type for a model, as one value."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

from models.errors import ModelNotFound, RequestInvalid

_HOSTS = {"hf.co", "huggingface.co", "www.hf.co", "www.huggingface.co"}
_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?")
_QUANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?::[A-Za-z0-9][A-Za-z0-9._-]{0,63})?")
_EXAMPLES = "such as qwen3:8b, org/repo, org/repo:Q4_K_M or a path to a .gguf file"


class NameKind(StrEnum):
    """What a name points at."""

    SHORT = "short"
    HUB = "hub"
    PATH = "path"


@dataclass(frozen=True, slots=True)
class ModelName:
    """A parsed name. Short names have `text` alone; hub names a `repo` and perhaps a quantization,
    file and revision; paths a `path`."""

    text: str
    kind: NameKind
    repo: str = ""
    quant: str = ""
    file: str = ""
    revision: str = ""
    path: Path | None = None


def parse(text: str) -> ModelName:
    """Read what was typed. Raises RequestInvalid, or ModelNotFound for a path that is not there."""
    name = text.strip()
    if not name:
        raise _invalid("An empty model name")
    if any(not char.isprintable() for char in name):
        raise _invalid("A model name with control characters")
    if len(name) > 4096:
        raise _invalid("A model name of that length")
    if (path := _path(name)) is not None:
        return ModelName(name, NameKind.PATH, path=path)
    plain = name.replace("\\", "/")
    if "://" in plain:
        return _from_url(name, plain)
    head, _, rest = plain.partition("/")
    if head.lower() in _HOSTS:
        return _from_segments(name, rest)
    if rest:
        return _from_segments(name, plain)
    if not _SHORT.fullmatch(plain) or ".." in plain:
        raise _invalid(f"The model name {name!r}")
    return ModelName(plain.lower().removesuffix(":latest"), NameKind.SHORT)


def _path(name: str) -> Path | None:
    """The file or folder meant, where the text can only be, or plainly is, a path."""
    explicit = re.match(r"(?:[/~]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|\\\\)", name) is not None
    if not explicit and ("://" in name or not (_is_gguf(name) or "/" in name or "\\" in name)):
        return None
    for spelling in dict.fromkeys((name, name.replace("\\", "/"))):
        try:
            path = Path(spelling).expanduser()
            if path.exists() and (explicit or path.is_file() or (path / "config.json").is_file()):
                return path.absolute()
        except (OSError, RuntimeError, ValueError):
            continue  # too long, or no such home: not a path
    if explicit:
        raise ModelNotFound(f"There is no file or folder {name}.")
    return None


def _is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


def _from_url(name: str, plain: str) -> ModelName:
    try:
        url = urlsplit(plain)
        host = url.hostname or ""
    except ValueError:
        raise _invalid(f"The address {name!r}") from None
    if url.scheme == "hf":
        return _from_segments(name, f"{url.netloc}{url.path}")
    if url.scheme not in ("http", "https") or host not in _HOSTS:
        raise RequestInvalid(
            f"{name!r} is not an address on huggingface.co, and no other hub is known.", "model"
        )
    return _from_segments(name, unquote(url.path).strip("/"))


def _from_segments(name: str, plain: str) -> ModelName:
    parts = plain.strip("/").split("/")
    if len(parts) < 2:
        raise _invalid(f"The model name {name!r}")
    owner, (repo, colon, quant) = parts[0], parts[1].partition(":")
    revision, file = "", ""
    if len(parts) > 2:
        if len(parts) < 4 or parts[2] not in ("tree", "blob", "resolve", "raw") or colon:
            raise _invalid(f"The model name {name!r}")
        revision, file = parts[3], "/".join(parts[4:])
        if any(part in ("", ".", "..") for part in parts[3:]):
            raise _invalid(f"The model name {name!r}")
    if not all(_PART.fullmatch(p) and ".." not in p and "--" not in p for p in (owner, repo)):
        raise _invalid(f"The model name {name!r}")
    if colon and not _QUANT.fullmatch(quant):
        raise _invalid(f"The quantization in {name!r}")
    quant = "" if quant == "latest" else quant.upper()
    if file and not _is_gguf(file):
        file = ""  # any page of the repository means the repository
    return ModelName(name, NameKind.HUB, f"{owner}/{repo}", quant, file, revision)


def _invalid(what: str) -> RequestInvalid:
    return RequestInvalid(f"{what} cannot be used; names look {_EXAMPLES}.", "model")
