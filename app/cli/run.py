"""`runner run`: one question, one answer on stdout, from a running server or in this process."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from app.client import LocalServer
    from app.settings import Settings


def run(
    model: Annotated[str, typer.Argument(help="A model's name.")],
    prompt: Annotated[
        str | None, typer.Argument(help="What to ask; a pipe is added to it.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="Ask this server.")] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=5, help="0 is greedy.")] = None,
    seed: Annotated[int | None, typer.Option(help="For the same answer again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the reply as JSON.")] = False,
) -> None:
    """Ask a model one question."""
    from app.settings import load_settings

    body: dict[str, Any] = {
        "model": model,
        "messages": _messages(system, _whole_prompt(prompt)),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    body = {key: value for key, value in body.items() if value is not None}
    settings = load_settings()
    screen = _Screen(quiet=as_json)
    server = _server(base_url, settings)
    result = _ask_server(server, body, screen) if server else _ask_here(settings, body, screen)
    screen.end(result, as_json=as_json)


@dataclass(slots=True)
class _Result:
    text: str = ""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None


class _Screen:
    """The answer on stdout, and notes on stderr for as long as somebody watches and waits."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._noted = False
        self._watched = sys.stderr.isatty()

    def note(self, text: str) -> None:
        if self._watched:
            self._noted = True
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()

    def say(self, text: str) -> None:
        self._clear()
        if not self._quiet:
            _write(text)

    def end(self, result: _Result, *, as_json: bool) -> None:
        self._clear()
        if not result.text:
            from models.errors import RunnerError

            raise RunnerError("The model gave no answer. Ask again, or with more --max-tokens.")
        if as_json:
            import dataclasses
            import json

            _write(json.dumps(dataclasses.asdict(result), ensure_ascii=False) + "\n")
        elif not result.text.endswith("\n"):
            _write("\n")

    def _clear(self) -> None:
        if self._noted:
            self._noted = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _write(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


def _whole_prompt(prompt: str | None) -> str:
    piped = ""
    if sys.stdin is not None and not sys.stdin.isatty():
        piped = sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n")
    whole = "\n\n".join(part for part in (prompt, piped) if part)
    if not whole.strip():
        from models.errors import RequestInvalid

        raise RequestInvalid("There is no prompt: write one after the model's name, or pipe it in.")
    return whole


def _messages(system: str | None, prompt: str) -> list[dict[str, str]]:
    head = [{"role": "system", "content": system}] if system else []
    return [*head, {"role": "user", "content": prompt}]


def _server(base_url: str | None, settings: "Settings") -> "LocalServer | None":
    """The named server, else ours where one runs on the port of the settings."""
    from app.address import local_url
    from app.client import LocalServer

    if base_url:
        return LocalServer(base_url, settings.api_key)
    url = local_url(settings.host, settings.port)
    return (
        LocalServer(url, settings.api_key) if LocalServer.identify(url, settings.api_key) else None
    )


def _ask_server(server: "LocalServer", body: dict[str, Any], screen: _Screen) -> _Result:
    result = _Result()
    options = {"stream_options": {"include_usage": True}, "return_progress": True}
    for chunk in server.chat({**body, **options}):
        result.usage = chunk.get("usage") or result.usage
        result.timings = chunk.get("timings") or result.timings
        if (loaded := chunk.get("load_progress")) is not None:
            screen.note(_loading(loaded))
        choices: list[dict[str, Any]] = chunk.get("choices") or []
        for choice in choices:
            result.finish_reason = choice.get("finish_reason") or result.finish_reason
            delta: dict[str, Any] = choice.get("delta") or {}
            if text := delta.get("content"):
                result.text += text
                screen.say(text)
    return result


def _ask_here(settings: "Settings", body: dict[str, Any], screen: _Screen) -> _Result:
    import asyncio

    from app.api.chat import ChatFields, request_of
    from app.build import build_private_host
    from app.settings import create_folders

    create_folders(settings)
    request = request_of(ChatFields.model_validate(body))

    async def ask() -> _Result:
        from contextlib import aclosing

        host = build_private_host(settings)
        try:
            async with aclosing(host.generate(request)) as events:
                return await _gather(events, screen)
        finally:
            await host.close()

    return asyncio.run(ask())


async def _gather(events: Any, screen: _Screen) -> _Result:
    from app.api import accounts
    from models.chat import Finished, Loading, Text

    result = _Result()
    async for event in events:
        match event:
            case Loading(fraction):
                screen.note(_loading(fraction))
            case Text(text):
                result.text += text
                screen.say(text)
            case Finished(reason, used, times):
                result.finish_reason = reason.value
                result.usage = accounts.usage([used], 1)
                result.timings = accounts.timings(times, used)
            case _:
                pass
    return result


def _loading(fraction: float) -> str:
    return f"loading the model: {fraction:.0%}"
