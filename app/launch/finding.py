"""Which server and which of its models an agent is pointed at."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from app.address import local_url
from app.client import LocalServer
from app.settings import LogLevel, Settings
from models.errors import ModelNotFound

Note = Callable[[str], None]
"""Is told what takes long."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model and where it is served. Lengths are in tokens, None where nobody knows them."""

    url: str
    model: str
    context: int | None
    trained: int | None


@contextmanager
def serving(
    settings: Settings, base_url: str | None, model: str | None, note: Note
) -> Generator[LocalServer]:
    """The named server, else ours where one runs on the port of the settings, else one that is
    started for this and ends with it. Raises RunnerError."""
    if running := _running(settings, base_url):
        yield running
        return
    from app.local import local_server

    name = model or _only_here(settings)
    note(f"starting a server for {name}")
    # Its log would be written across the agent's screen.
    with local_server(settings, name, LogLevel.ERROR) as (url, _):
        yield LocalServer(url, settings.api_key)


def loaded(server: LocalServer, model: str | None, note: Note) -> Found:
    """The model to ask for: the one that is named, else the loaded one, else the only one. It is
    loaded first, for only then is its context known. Raises RunnerError."""
    entry = _meant(server, model)
    if entry.get("state", "ready") != "ready":
        note(f"loading {entry['id']}")
        server.load(entry["id"])
        entry = server.model(entry["id"])
    return _found(server.base_url, entry)


def shown(settings: Settings, base_url: str | None, model: str | None) -> Found:
    """What `loaded` would find, as far as that is known without starting anything. Raises
    RunnerError."""
    if running := _running(settings, base_url):
        return _found(running.base_url, _meant(running, model))
    from models.store import Store

    card = Store(settings.models_dir).find(model or _only_here(settings))
    return Found(local_url(settings.host, settings.port), card.id, settings.ctx, None)


def _running(settings: Settings, base_url: str | None) -> LocalServer | None:
    if base_url:
        return LocalServer(base_url, settings.api_key)
    url = local_url(settings.host, settings.port)
    known = LocalServer.identify(url, settings.api_key)
    return LocalServer(url, settings.api_key) if known else None


def _meant(server: LocalServer, model: str | None) -> dict[str, Any]:
    if model is not None:
        return server.model(model)
    entries = server.models()
    ready = [entry for entry in entries if entry.get("state") == "ready"]
    for candidates in (ready, entries):
        if len(candidates) == 1:
            return candidates[0]
    raise _unclear(f"{server.base_url} has", [entry["id"] for entry in entries])


def _only_here(settings: Settings) -> str:
    from models.store import Store

    ids = [card.id for card in Store(settings.models_dir).list()]
    if len(ids) == 1:
        return ids[0]
    raise _unclear("No server runs, and here are", ids)


def _unclear(where: str, ids: Sequence[str]) -> ModelNotFound:
    if not ids:
        return ModelNotFound(f"{where} no models. `runner pull MODEL` fetches one.")
    some = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    return ModelNotFound(
        f"Which model is meant is not clear: {where} {some}. Name one: `runner launch AGENT MODEL`."
    )


def _found(url: str, entry: dict[str, Any]) -> Found:
    context = entry.get("context_length") or entry.get("max_model_len")
    return Found(url, entry["id"], context, entry.get("trained_context_length"))
