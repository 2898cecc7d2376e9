"""Whatever a client sends, it is answered or refused in its own dialect, and nothing breaks: every
route over the real engine, on tiny random weights."""

import asyncio
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings

from app.api.description import OllamaError, error_of
from app.api.errors import INTERNAL
from app.build import build_host
from app.guard import MAX_BODY_BYTES
from app.server import bind, create_app
from app.settings import Settings
from tests.app.fuzzing import MODEL, ROUTES, Sent, requests
from tests.weights import write_model

LONGEST_S = 30.0
"""No request takes longer, or it hangs."""
NOT_SERVED = {f"/api/{verb}" for verb in ("copy", "push", "create")}


ELSEWHERE = ("HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME", "LLAMA_CACHE")


@dataclass
class Target:
    """A server in a thread of its own, with what it logged."""

    http: httpx.Client
    records: list[logging.LogRecord] = field(default_factory=list[logging.LogRecord])
    seen: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    """How often a path was answered with a status."""

    def answer(self) -> str:
        """A fixed question, answered without chance."""
        body = {"model": MODEL, "prompt": "the same", "temperature": 0, "max_tokens": 8}
        reply = self.http.post("/v1/completions", json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["text"]

    def busy(self) -> int:
        told = self.http.get("/runner/status").json()["models"]
        return sum(model["running"] + model["waiting"] for model in told)


class _Kept(logging.Handler):
    def __init__(self, into: list[logging.LogRecord]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        self._into.append(record)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "models").mkdir()
    monkeypatch = pytest.MonkeyPatch()
    for name in ELSEWHERE:
        monkeypatch.setenv(name, str(folder))  # nobody's own models can be met
    write_model(folder / "models" / f"{MODEL}.gguf", "llama")
    with (
        serving(folder) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=LONGEST_S) as http,
    ):
        made = Target(http)
        handler = _Kept(made.records)
        logging.getLogger().addHandler(handler)
        yield made
        logging.getLogger().removeHandler(handler)
    monkeypatch.undo()


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    chosen = Settings(
        port=0,
        ctx=1024,
        parallel=4,
        memory_budget=1 << 30,
        cache_ram=0,
        disk_cache=False,
        local_only=True,
        models_dir=folder / "models",
        state_dir=folder,
        cache_dir=folder,
    )
    listener = bind("127.0.0.1", 0)
    ready, stop = threading.Event(), threading.Event()

    async def run() -> None:
        host = build_host(chosen)
        config = uvicorn.Config(
            create_app(host, chosen), log_config=None, access_log=False, lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        serve = asyncio.create_task(server.serve([listener]))
        ready.set()
        await asyncio.to_thread(stop.wait)
        server.should_exit = True
        await serve
        await host.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(20)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        thread.join(60)
        listener.close()
    assert not thread.is_alive()


def send(target: Target, sent: Sent) -> None:
    """Send one request and judge the answer."""
    content = iter([sent.body]) if sent.chunked and sent.body is not None else sent.body
    request = target.http.build_request(
        sent.method, sent.path, content=content, headers=sent.headers
    )
    reply = target.http.send(request, stream=True)
    try:
        target.seen[(sent.path, reply.status_code)] += 1
        if sent.leaves and reply.status_code == 200:
            return
        text = reply.read().decode()
        judge(sent, reply, text)
    finally:
        reply.close()


def judge(sent: Sent, reply: httpx.Response, text: str) -> None:
    path = unquote(sent.path.partition("?")[0])
    assert INTERNAL not in text, sent
    if reply.status_code == 503:
        assert "retry-after" in reply.headers, sent
    else:
        assert reply.status_code < 500 or (reply.status_code == 501 and path in NOT_SERVED), text
    if sent.method == "HEAD":
        return
    if reply.status_code >= 400:
        assert error_of(path).model_validate_json(text, strict=True)
        return
    kind = reply.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        for frame in text.removesuffix("\n\n").split("\n\n"):
            last = frame.splitlines()[-1]
            data = last.removeprefix("data: ")
            assert last.startswith("data: "), frame
            told = {} if data == "[DONE]" else json.loads(data)
            if set(told) == {"error"} or (told.get("type") == "error" and "messages" in path):
                assert error_of(path).model_validate(told, strict=True)
    elif kind.startswith("application/x-ndjson"):
        for line in text.splitlines():
            if "error" in (told := json.loads(line)):
                OllamaError.model_validate(told, strict=True)
    elif kind.startswith("application/json"):
        json.loads(text)


def bombard(target: Target, count: int) -> None:
    """Send so many requests; afterwards all is as it was."""
    before = target.answer()
    total = target.seen.total()

    @given(sent=requests())
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.filter_too_much,
        ],
    )
    def each(sent: Sent) -> None:
        send(target, sent)

    each()
    assert target.seen.total() - total >= count
    assert target.answer() == before
    assert not [r.getMessage() for r in target.records if r.levelno >= logging.ERROR]
    assert not [r.getMessage() for r in target.records if "died" in r.getMessage()]
    assert target.busy() == 0
    # Every route that generates was asked what it answers, and what it refuses.
    for method, path, fields in ROUTES:
        if method == "POST" and "stream" in fields and path != "/api/pull":
            for status in (200, 400):
                assert target.seen[(path, status)] > count // 100, (path, status)


def test_a_thousand_odd_requests_break_nothing(target: Target) -> None:
    bombard(target, 1000)


@pytest.mark.long
def test_five_thousand_odd_requests_break_nothing(target: Target) -> None:
    bombard(target, 5000)
    for path, status in sorted(target.seen):
        print(status, path[:60], target.seen[(path, status)])


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("path", sorted({path for method, path, _ in ROUTES if method == "POST"}))
def test_a_body_that_is_too_large_is_refused_by_every_dialect(
    target: Target, path: str, chunked: bool
) -> None:
    body = b'"' + b"x" * (MAX_BODY_BYTES + 1)
    headers = {"content-type": "application/json"}
    content = (body[i : i + (1 << 22)] for i in range(0, len(body), 1 << 22)) if chunked else body
    reply = target.http.post(path, content=content, headers=headers)
    if path in NOT_SERVED and chunked:  # nobody reads the body there
        assert reply.status_code == 501
    else:
        assert reply.status_code == 413
    assert error_of(path).model_validate_json(reply.text, strict=True)
