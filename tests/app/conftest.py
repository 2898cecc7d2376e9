"""A real server on a free port around a scripted host."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn

from app.api.reply import Pace
from app.server import bind, create_app
from app.settings import Settings
from tests.app.scripted import MODEL, ScriptedHost


@dataclass
class Stream:
    """A streamed reply, taken apart."""

    status: int
    headers: httpx.Headers
    data: list[str] = field(default_factory=list[str])

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(item) for item in self.data if item != "[DONE]"]

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices", [])]

    def text(self, index: int = 0) -> str:
        parts = [c for c in self.choices if c["index"] == index]
        return "".join(c.get("text") or c.get("delta", {}).get("content") or "" for c in parts)

    def finishes(self, index: int = 0) -> list[str]:
        found = [c["finish_reason"] for c in self.choices if c["index"] == index]
        return [reason for reason in found if reason]


@dataclass
class Served:
    """A server, its scripted host, and a client of it."""

    url: str
    host: ScriptedHost
    http: httpx.AsyncClient

    async def chat(self, **fields: Any) -> httpx.Response:
        return await self.http.post("/v1/chat/completions", json=chat_body(**fields))

    async def complete(self, **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "prompt": "Once", **fields}
        return await self.http.post("/v1/completions", json=body)

    async def stream(self, path: str = "/v1/chat/completions", **fields: Any) -> Stream:
        body = (
            chat_body(**fields) if "chat" in path else {"model": MODEL, "prompt": "Once", **fields}
        )
        async with self.http.stream("POST", path, json={**body, "stream": True}) as reply:
            stream = Stream(reply.status_code, reply.headers)
            if reply.status_code != 200:
                stream.data.append((await reply.aread()).decode())
                return stream
            async for line in reply.aiter_lines():
                if line.startswith("data: "):
                    stream.data.append(line[6:])
        return stream


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **fields}


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Served]]


@contextlib.asynccontextmanager
async def serving(
    host: ScriptedHost | None = None, settings: Settings | None = None, pace: Pace | None = None
) -> AsyncGenerator[Served]:
    host, settings = host or ScriptedHost(), settings or Settings(port=0)
    app = create_app(host, settings, pace)
    with contextlib.closing(bind("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve([listener]))  # pyright: ignore[reportPrivateUsage]
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
                yield Served(url, host, http)
        finally:
            server.should_exit = server.force_exit = True
            await task


@pytest.fixture
async def served() -> AsyncGenerator[Served]:
    async with serving() as one:
        yield one


async def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait for what is expected, not for a time."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)
