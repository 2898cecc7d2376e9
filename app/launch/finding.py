"""Which server and which of its models an agent is pointed at."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from app.address import local_url
from app.client import LocalServer
from app.settings import LogLevel, Settings
from models.errors import ModelNotFound, ServerUnreachable

Note = Callable[[str], None]
"""Is told what takes long."""


@dataclass(frozen=True, slots=True)
class Found:
    """A model and where it is served. Lengths are in tokens, None where nobody knows them."""

    url: str
    model: str
    context: int | None
    trained: int | None
    ready: bool
    """Loaded, so that `context` is what it has got."""


Check = Callable[[Found], None]


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


def loaded(server: LocalServer, model: str | None, check: Check, note: Note) -> Found:
    """The model to ask for: the one that is named, else the loaded one, else the only one. It is
    checked with what it could have, loaded, and checked with what it has got. Raises RunnerError,
    and what `check` raises."""
    found = _meant(server, model)
    check(found)
    if found.ready:
        return found
    note(f"loading {found.model}")
    server.load(found.model)
    found = _found(server, server.model(found.model))
    check(found)
    return found


def shown(settings: Settings, base_url: str | None, model: str | None) -> Found:
    """What `loaded` would find, as far as that is known without starting anything. Raises
    RunnerError."""
    if running := _running(settings, base_url):
        return _meant(running, model)
    from models.store import Store

    card = Store(settings.models_dir).find(model or _only_here(settings))
    return Found(local_url(settings.host, settings.port), card.id, settings.ctx, None, ready=False)


def _running(settings: Settings, base_url: str | None) -> LocalServer | None:
    if base_url:
        return LocalServer(base_url, settings.api_key)
    url = local_url(settings.host, settings.port)
    known = LocalServer.identify(url, settings.api_key)
    return LocalServer(url, settings.api_key) if known else None


def _meant(server: LocalServer, model: str | None) -> Found:
    if model is not None:
        return _found(server, server.model(model))
    all_here = [_found(server, entry) for entry in server.models()]
    for candidates in ([one for one in all_here if one.ready], all_here):
        if len(candidates) == 1:
            return candidates[0]
    raise _unclear(f"{server.base_url} has", [one.model for one in all_here])


def _found(server: LocalServer, entry: dict[str, Any]) -> Found:
    try:
        name = str(entry["id"])
    except KeyError:
        raise ServerUnreachable(f"{server.base_url} lists a model without a name.") from None
    context = entry.get("context_length") or entry.get("max_model_len")
    trained = entry.get("trained_context_length")
    # Servers that do not tell have what they list.
    return Found(server.base_url, name, context, trained, entry.get("state", "ready") == "ready")


def _only_here(settings: Settings) -> str:
    from models.store import Store

    ids = [card.id for card in Store(settings.models_dir).list()]
    if len(ids) == 1:
        return ids[0]
    raise _unclear("no server runs, and this machine has", ids)


def _unclear(where: str, ids: Sequence[str]) -> ModelNotFound:
    if not ids:
        return ModelNotFound(
            f"There is nothing to launch an agent on: {where} no model. `runner pull MODEL` "
            "fetches one."
        )
    some = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
    return ModelNotFound(
        f"Which model is meant is not clear: {where} {some}. Name one: `runner launch AGENT MODEL`."
    )
