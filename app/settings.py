"""Every setting: defaults, the TOML file, the environment, flags; and where each came from."""

import difflib
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from models.errors import SettingsError
from models.kv import KvType

APP_NAME = "runner"
CONFIG_NAME = "config.toml"
DEFAULT_ORIGIN = "default"

# What guesses tokens, where it is no model.
DRAFT_FROM_TEXT = "auto"
DRAFT_OFF = "off"


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Settings:
    """What one process of ours runs with. Made once, at the door."""

    host: str = "127.0.0.1"
    port: int = 11411
    """0 takes any free port."""
    ctx: int | None = None
    """Tokens one request may use; None is the model's own, fitted to memory."""
    parallel: int = 8
    """Requests of one model that run at once."""
    api_key: str | None = field(default=None, repr=False)
    local_only: bool = False
    log_level: LogLevel = LogLevel.INFO
    keep_alive_s: float = 300.0
    """How long an idle model stays loaded."""
    memory_budget: int | None = None
    """Bytes for models and their caches; None is a share of what is free."""
    max_queue: int = 256
    """Requests of one model that may wait."""
    kv_type: KvType = KvType.F16
    """How keys and values are written; q8_0 needs about half of what f16 does, q4_0 a quarter."""
    cache_ram: int | None = None
    """Bytes of host memory for what no longer fits the cache; 0 is none, None a share of what is
    left beside the model."""
    gpu_layers: int | None = None
    """Layers on the GPUs; None is as many as fit."""
    models_dir: Path = Path()
    state_dir: Path = Path()
    cache_dir: Path = Path()
    draft: str = DRAFT_FROM_TEXT
    """What guesses tokens where that is faster: a request's own text, also a model of this name, or
    nothing."""
    canonical_prompts: bool = True
    """Whether what changes from request to request and means nothing is taken out of prompts."""
    disk_cache: bool = True
    """Whether KV memory is kept on disk, so that it survives a restart."""
    disk_cache_bytes: int = 20 << 30
    """What it may take there, for all models together."""
    cache_retention_h: float = 72.0
    """Hours that each piece of it is kept after its last use."""
    config_file: Path = Path()
    origin: Mapping[str, str] = field(default_factory=dict[str, str])
    """By key: `default`, the file's path, the variable's name or the flag."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """How one value is read (ValueError: it cannot be), and what to tell whoever wrote it."""

    read: Callable[[Any], Any]
    allowed: str


def _integer(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError
        number = int(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return read


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError
    return number


_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _bytes(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", str(value).strip().lower())
    if match is None or isinstance(value, bool):
        raise ValueError
    power = _UNITS[match[2]]
    scale = 1000 ** (power // 10) if match[3] == "b" else 1 << power
    size = int(float(match[1]) * scale)
    if size <= 0:
        raise ValueError
    return size


def _bytes_or_none(value: Any) -> int:
    return 0 if str(value).strip() == "0" and not isinstance(value, bool) else _bytes(value)


def _layers(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().lower() == "auto":
        return None
    return _integer(0, 10_000)(value)


_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off"}


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = _text(value).lower()
    if word not in _YES | _NO:
        raise ValueError
    return word in _YES


def _draft(value: Any) -> str:
    if isinstance(value, bool) or _text(value).lower() in _YES | _NO:
        return DRAFT_FROM_TEXT if _boolean(value) else DRAFT_OFF
    return _text(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _key(value: Any) -> str:
    key = _text(value)
    if not key.isascii() or not key.isprintable():
        raise ValueError  # it has to travel in a header
    return key


def _folder(value: Any) -> Path:
    return Path(_text(value)).expanduser().absolute()


_COUNT = _integer(1, 1 << 20)
_RULES: dict[str, _Rule] = {
    "host": _Rule(_text, "an address or host name, such as 127.0.0.1"),
    "port": _Rule(_integer(0, 65535), "a number from 0 to 65535"),
    "ctx": _Rule(_integer(16, 1 << 27), "a number of tokens, 16 or more"),
    "parallel": _Rule(_integer(1, 256), "a number from 1 to 256"),
    "api_key": _Rule(_key, "plain printable text without line breaks"),
    "local_only": _Rule(_boolean, "true or false"),
    "log_level": _Rule(lambda v: LogLevel(_text(v).lower()), "one of " + ", ".join(LogLevel)),
    "keep_alive_s": _Rule(_amount, "a number of seconds, 0 or more"),
    "memory_budget": _Rule(_bytes, "a size above 0, such as 12GiB or a number of bytes"),
    "max_queue": _Rule(_COUNT, "a number from 1 to 1048576"),
    "kv_type": _Rule(lambda v: KvType(_text(v).lower()), "one of " + ", ".join(KvType)),
    "cache_ram": _Rule(_bytes_or_none, "a size such as 4GiB, or 0 for none"),
    "gpu_layers": _Rule(_layers, "auto, or a number of layers from 0"),
    "models_dir": _Rule(_folder, "a folder's path"),
    "state_dir": _Rule(_folder, "a folder's path"),
    "cache_dir": _Rule(_folder, "a folder's path"),
    "draft": _Rule(_draft, "auto, off, or the name of a small model"),
    "canonical_prompts": _Rule(_boolean, "true or false"),
    "disk_cache": _Rule(_boolean, "true or false"),
    "disk_cache_bytes": _Rule(_bytes, "a size above 0, such as 20GiB or a number of bytes"),
    "cache_retention_h": _Rule(_amount, "a number of hours, 0 or more"),
}
_FILE_RULE = _Rule(_folder, "a file's path")


def load_settings(
    flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Join all sources; later ones win: defaults, file, environment, flags (None: not given).

    Raises SettingsError."""
    env = os.environ if environ is None else environ
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    values, origin = _places(env)
    named = given.pop("config_file", None)
    source = "--config-file" if named else "RUNNER_CONFIG_FILE"
    if explicit := named or env.get(source):
        values["config_file"] = _read("config_file", explicit, source, _FILE_RULE)
        origin["config_file"] = source

    def take(key: str, value: object, source: str) -> None:
        values[key] = _read(key, value, source, _RULES[key])
        origin[key] = source

    file: Path = values["config_file"]
    for key, value in _file_values(file, must_exist=bool(explicit)).items():
        take(key, value, str(file))
    for key in _RULES:
        if text := env.get(variable := f"RUNNER_{key.upper()}"):
            take(key, text, variable)
    for key, value in given.items():
        if key not in _RULES:
            raise SettingsError(f"{key} is not a setting.{_meant(key)}")
        take(key, value, "--" + key.replace("_", "-"))
    return Settings(**values, origin=MappingProxyType(origin))


def create_folders(settings: Settings) -> None:
    """Make our folders, readable by their owner only. Raises SettingsError."""
    for key in ("state_dir", "models_dir"):
        folder: Path = getattr(settings, key)
        try:
            # `parents=True` would make the folders above it readable by others
            for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
                missing.mkdir(mode=0o700, exist_ok=True)
            if not folder.is_dir():
                raise NotADirectoryError(0, "it is not a folder")
        except OSError as error:
            raise SettingsError(
                f"{key} = {folder} (from {settings.origin[key]}) cannot be created: "
                f"{error.strerror}. Name another folder, or set RUNNER_HOME."
            ) from error


def _places(env: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Where our files lie before anything else is read, and the origin of every default."""
    origin = {f.name: DEFAULT_ORIGIN for f in fields(Settings) if f.name != "origin"}
    if home := env.get("RUNNER_HOME"):
        root = _folder(home)
        config, state, models = root / CONFIG_NAME, root / "state", root / "models"
        cache = root / "cache"
        named = ("config_file", "state_dir", "models_dir", "cache_dir")
        origin |= dict.fromkeys(named, "RUNNER_HOME")
    else:
        config = platformdirs.user_config_path(APP_NAME, appauthor=False) / CONFIG_NAME
        state = platformdirs.user_state_path(APP_NAME, appauthor=False)
        models = platformdirs.user_data_path(APP_NAME, appauthor=False) / "models"
        cache = platformdirs.user_cache_path(APP_NAME, appauthor=False)
    places = {"config_file": config, "state_dir": state, "models_dir": models, "cache_dir": cache}
    return places, origin


def _file_values(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"The configuration file {file} does not exist.") from None
        return {}
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # malformed TOML, or not UTF-8
        raise SettingsError(f"{file} is not valid TOML: {error}.") from error
    for key in values:
        if key not in _RULES:
            raise SettingsError(f"{file} has an unknown key: {key}.{_meant(key)}")
    return values


def _meant(key: str) -> str:
    close = difflib.get_close_matches(key.lower().replace("-", "_"), _RULES, n=1)
    return f" Did you mean {close[0]}?" if close else f" Known keys: {', '.join(_RULES)}."


def _read(key: str, value: object, source: str, rule: _Rule) -> Any:
    try:
        return rule.read(value)
    except ValueError:
        shown = "(hidden)" if key == "api_key" else repr(value)
        raise SettingsError(
            f"{key} = {shown} (from {source}) cannot be used: it must be {rule.allowed}."
        ) from None
