"""A real server on a free port around a scripted host."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

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
        config.load()
        state = ServerState()
        # uvicorn's own protocol without its main loop, whose ticks would cost each test 0.2 s
        server = await asyncio.get_running_loop().create_server(
            lambda: H11Protocol(config=config, server_state=state, app_state={}),
            sock=listener,
        )
        try:
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
                yield Served(url, host, http)
        finally:
            server.close()
            for connection in list(state.connections):
                connection.shutdown()
            for task in list(state.tasks):
                task.cancel()
            await asyncio.gather(*state.tasks, return_exceptions=True)
            await until(lambda: not state.connections)


@pytest.fixture
async def served() -> AsyncGenerator[Served]:
    async with serving() as one:
        yield one


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the settings, the port or the proxy of whoever runs it."""
    for name in list(os.environ):
        if name.startswith("RUNNER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RUNNER_HOME", str(tmp_path))
    monkeypatch.setenv("RUNNER_PORT", "9")  # nobody answers there
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
        monkeypatch.setenv(name.lower(), "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")


async def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait for what is expected, not for a time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.01)
