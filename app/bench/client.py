"""A streaming client of any OpenAI-compatible server that notes when each piece of text came."""

import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import httpx

from app.client import LocalServer
from models.errors import RunnerError, ServerUnreachable

_CONNECT_S = 5.0
_LISTING_S = 30.0
# A server without keep-alives says nothing while it reads a long prompt or loads a model.
_SILENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer. Times are seconds after the request was sent; None: it was not told."""

    text: str
    arrivals: tuple[float, ...]
    """When each chunk that carried text came."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A model as `GET /v1/models` tells of it."""

    id: str
    weight_bytes: int | None
    ready: bool


class Endpoint:
    """One server. Used as an async context manager, which closes its connections."""

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        # The one place that knows what an address may look like and when a proxy is meant.
        server = LocalServer(base_url, api_key)
        self.base_url, self.is_local = server.base_url, server.is_local
        self._http = server.async_client(httpx.Timeout(_SILENCE_S, connect=_CONNECT_S))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def models(self) -> tuple[Listed, ...]:
        """What can be asked for; empty where the server has no such list. Raises RunnerError."""
        async with self._speaking():
            reply = await self._http.get("/v1/models", timeout=_LISTING_S)
            if reply.status_code in (404, 405, 501):
                return ()
            if reply.status_code != 200:
                raise self._refused(reply)
            entries = _dict(_json(reply.text)).get("data")
        found = cast(list[Any], entries) if isinstance(entries, list) else []
        return tuple(_listed(_dict(entry)) for entry in found if "id" in _dict(entry))

    async def chat(self, body: Mapping[str, Any]) -> Reply:
        """Ask and wait for the end of the answer. Raises RunnerError."""
        whole = {**body, "stream": True, "stream_options": {"include_usage": True}}
        gathered = _Gathered()
        async with self._speaking():
            sent = time.perf_counter()
            async with self._http.stream("POST", "/v1/chat/completions", json=whole) as reply:
                if reply.status_code != 200:
                    await reply.aread()
                    raise self._refused(reply)
                async for line in reply.aiter_lines():
                    if line.startswith("data:") and gathered.take(
                        line[5:].strip(), time.perf_counter() - sent
                    ):
                        break
        if not gathered.complete:
            raise RunnerError(f"{self.base_url} ended the answer before it was complete.")
        return gathered.reply()

    def _refused(self, reply: httpx.Response) -> RunnerError:
        message = _dict(_dict(_json(reply.text)).get("error")).get("message")
        said = f": {message}" if message else "."
        return RunnerError(f"{self.base_url} answered with HTTP {reply.status_code}{said}")

    @asynccontextmanager
    async def _speaking(self) -> AsyncGenerator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise ServerUnreachable(
                f"No server answers at {self.base_url} ({error}). Start it, or name another."
            ) from error
        except httpx.TimeoutException as error:
            raise ServerUnreachable(f"{self.base_url} did not answer in time.") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise ServerUnreachable(f"{self.base_url} broke off: {why}.") from error


class _Gathered:
    """The chunks of one answer so far."""

    def __init__(self) -> None:
        self.complete = False
        self._text: list[str] = []
        self._arrivals: list[float] = []
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}

    def take(self, data: str, now: float) -> bool:
        """Add one event; True where it was the last. Raises RunnerError."""
        if data == "[DONE]":
            self.complete = True
            return True
        chunk = _json(data)
        if not isinstance(chunk, dict):
            raise RunnerError(f"The server sent what is not a chunk of an answer: {data[:80]}")
        chunk = cast(dict[str, Any], chunk)
        if error := chunk.get("error"):
            raise RunnerError(str(_dict(error).get("message") or error))
        self._usage = _dict(chunk.get("usage")) or self._usage
        choices = chunk.get("choices")
        for choice in cast(list[Any], choices) if isinstance(choices, list) else []:
            self._add(_dict(choice), now)
        return False

    def _add(self, choice: dict[str, Any], now: float) -> None:
        delta = _dict(choice.get("delta"))
        # Thoughts are tokens, too; servers name them in two ways.
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        content = delta.get("content")
        if isinstance(content, str) and content:
            self._text.append(content)
        if content or thought or delta.get("tool_calls"):
            self._arrivals.append(now)
        if reason := choice.get("finish_reason"):
            self._finish = str(reason)
            self.complete = True  # not every server says [DONE]

    def reply(self) -> Reply:
        details = _dict(self._usage.get("prompt_tokens_details"))
        return Reply(
            text="".join(self._text),
            arrivals=tuple(self._arrivals),
            finish_reason=self._finish,
            prompt_tokens=_count(self._usage.get("prompt_tokens")),
            cached_tokens=_count(details.get("cached_tokens")),
            output_tokens=_count(self._usage.get("completion_tokens")),
        )


def _listed(entry: dict[str, Any]) -> Listed:
    # Ours says `size_bytes`, llama-server `meta.size`; nobody else tells.
    size = _count(entry.get("size_bytes")) or _count(_dict(entry.get("meta")).get("size"))
    return Listed(str(entry["id"]), size or None, entry.get("state") == "ready")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _dict(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
