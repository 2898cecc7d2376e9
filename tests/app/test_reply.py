"""When an error is still a status, what keeps a silent stream alive, and clients that leave."""

import asyncio
import json
import logging
from typing import Any

import pytest

from app.api.description import error_of
from app.api.reply import Pace
from app.journal import OneEntry
from models.chat import Loading, Prefill, Request, Started, Text
from models.errors import (
    ContextOverflow,
    DoesNotFit,
    EngineBusy,
    EngineFailed,
    ModelInvalid,
    RunnerError,
    RuntimeUnavailable,
    TemplateFailed,
)
from tests.app.conftest import Served, chat_body, serving, until
from tests.app.scripted import MODEL, ScriptedHost, Step, answer, finished

FAST = Pace(commit_after_s=0.15, keepalive_s=0.05)
PATHS = ("/v1/chat/completions", "/v1/completions")
STATUSES: list[tuple[RunnerError, int, str | None]] = [
    (ContextOverflow(5000, 4096), 400, "context_length_exceeded"),
    (TemplateFailed("no"), 400, "template_error"),
    (EngineBusy("full", 3), 503, "engine_busy"),
    (DoesNotFit("big"), 422, "insufficient_memory"),
    (EngineFailed("died"), 500, "engine_failed"),
    (RuntimeUnavailable("none"), 422, "runtime_unavailable"),
    (ModelInvalid("torn"), 422, "model_invalid"),
    (RunnerError("else"), 500, None),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "code"), STATUSES)
async def test_an_early_error_is_a_status(
    served: Served, error: RunnerError, status: int, code: str | None, stream: bool
) -> None:
    served.host.script = lambda request: [Loading(0.5), 0.05, error]
    for path in PATHS:
        body = {**chat_body(), "prompt": "x", "stream": stream}
        reply = await served.http.post(path, json=body)
        assert reply.status_code == status
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["error"]["code"] == code
        assert reply.json()["error"]["message"] == error.message
        assert reply.headers.get("x-should-retry") == ("false" if status == 500 else None)
        assert reply.headers.get("retry-after") == ("3" if status == 503 else None)


BODIES: dict[str, dict[str, Any]] = {
    **{path: {**chat_body(), "prompt": "x"} for path in PATHS},
    "/v1/messages": {**chat_body(), "max_tokens": 9},
    "/v1/responses": {"model": MODEL, "input": "x"},
    "/api/chat": chat_body(),
    "/api/generate": {"model": MODEL, "prompt": "x"},
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_a_full_queue_says_when_to_come_back_in_every_dialect(
    served: Served, path: str, stream: bool
) -> None:
    served.host.script = lambda request: [EngineBusy("full", 3)]
    reply = await served.http.post(path, json={**BODIES[path], "stream": stream})
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "3")
    assert error_of(path).model_validate_json(reply.text, strict=True)
    if path == "/v1/messages":
        assert reply.json()["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("path", BODIES)
async def test_no_stream_is_silent_for_long_in_any_dialect(path: str) -> None:
    steps: list[Step] = [Started(5, 4096), Prefill(0, 5, 0), 0.4, Text("x"), finished(1)]
    async with serving(ScriptedHost(lambda _: steps), pace=FAST) as served:
        body = {**BODIES[path], "stream": True}
        async with served.http.stream("POST", path, json=body) as reply:
            arrived = [line async for line in reply.aiter_lines()]
    first = next(i for i, line in enumerate(arrived) if '"x"' in line)
    told = [line for line in arrived[:first] if line.startswith(("data: {", "{"))]
    assert len(told) >= 4  # events, no comments: some clients count nothing else
    assert not [line for line in arrived if line.startswith(":")]


async def test_an_overflow_names_the_field_of_its_dialect(served: Served) -> None:
    served.host.script = lambda request: [ContextOverflow(5000, 4096)]
    assert (await served.chat()).json()["error"]["param"] == "messages"
    error = (await served.complete()).json()["error"]
    assert error["param"] == "prompt"
    assert "4096" in error["message"]
    assert "5000" in error["message"]


async def test_an_unknown_model_is_404(served: Served) -> None:
    for stream in (False, True):
        reply = await served.chat(model="nope", stream=stream)
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == "model_not_found"


async def test_one_refused_choice_refuses_the_request() -> None:
    def script(request: Request) -> list[Step]:
        if request.sampling.seed == 2:
            return [0.05, EngineBusy("full")]
        return [Started(5, 4096), Text("early"), 0.3, finished(1)]

    async with serving(ScriptedHost(script), pace=FAST) as served:
        assert (await served.chat(n=2, seed=1, stream=True)).status_code == 503
        await until(lambda: served.host.done == 2)
        assert served.host.cancelled == 1


async def test_a_late_error_is_an_event() -> None:
    late = [Started(5, 4096), Text("Hel"), 0.3, EngineFailed("It died.")]
    async with serving(ScriptedHost(lambda request: late), pace=FAST) as served:
        for path in PATHS:
            stream = await served.stream(path)
            assert stream.status == 200
            assert stream.data[-1] == "[DONE]"
            assert json.loads(stream.data[-2])["error"]["message"] == "It died."
            assert stream.finishes() == []


async def test_an_unexpected_error_shows_nothing_of_the_inside(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.host.script = lambda request: [ValueError("secret place")]
    for stream in (False, True):
        reply = await served.chat(stream=stream)
        assert reply.status_code == 500
        assert reply.json()["error"]["code"] == "internal_error"
        assert "secret" not in reply.text
        assert reply.headers["x-request-id"] in caplog.text
    served.host.script = lambda request: [Started(1, 9), Text("a"), ValueError("secret place")]
    late = await served.stream()
    assert "secret" not in "".join(late.data)
    assert "secret place" in caplog.text


async def test_a_generator_that_just_ends_is_an_error(served: Served) -> None:
    served.host.script = lambda request: [Started(5, 4096), Text("half")]
    assert (await served.chat()).status_code == 500


async def test_a_slow_start_commits_and_stays_audible() -> None:
    slow = [Loading(0.1), 0.4, Started(5, 4096), Prefill(1, 5, 0), 0.2, Text("Hi"), finished(1)]
    async with serving(ScriptedHost(lambda request: slow), pace=FAST) as served:
        began = asyncio.get_running_loop().time()
        for path, key in zip(PATHS, ("delta", "text"), strict=True):
            body = {**chat_body(), "prompt": "x", "stream": True}
            async with served.http.stream("POST", path, json=body) as reply:
                assert reply.status_code == 200
                assert asyncio.get_running_loop().time() - began < 0.39
                lines = [line async for line in reply.aiter_lines() if line]
            choices = [json.loads(x[6:])["choices"][0] for x in lines if x != "data: [DONE]"]
            silent = [c for c in choices if c[key] in ({"content": ""}, "")]
            assert len(silent) >= 5
            assert lines[-1] == "data: [DONE]"
            began = asyncio.get_running_loop().time()


async def test_a_long_wait_fails_as_an_event_after_the_headers() -> None:
    slow = [Loading(0.1), 0.3, DoesNotFit("Too big.")]
    async with serving(ScriptedHost(lambda request: slow), pace=FAST) as served:
        stream = await served.stream()
        assert stream.status == 200
        assert json.loads(stream.data[-2])["error"]["code"] == "insufficient_memory"
        assert (await served.chat()).status_code == 422


HANGING: dict[str, list[Step]] = {
    "load": [Loading(0.1), 60.0],
    "queue": [60.0],
    "prefill": [Started(5, 4096), Prefill(1, 5, 0), 60.0],
    "decode": [Started(5, 4096), Text("a"), 60.0],
}


async def read_all(served: Served, path: str, body: dict[str, Any]) -> None:
    async with served.http.stream("POST", path, json=body) as reply:
        async for _ in reply.aiter_lines():
            pass


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", HANGING)
async def test_a_client_that_leaves_stops_the_work(phase: str, stream: bool) -> None:
    host = ScriptedHost(lambda request: HANGING[phase])
    async with serving(host, pace=FAST) as served:
        for path in PATHS:
            body = {**chat_body(), "prompt": "x", "stream": stream, "n": 2}
            before = host.done
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read_all(served, path, body), 0.4)
            await until(lambda before=before: host.done == before + 2)
        assert host.cancelled == 4


async def test_a_closed_stream_cancels_while_text_flows() -> None:
    def endless(request: Request) -> list[Step]:
        return [Started(5, 4096), *([Text("word "), 0.001] * 20_000), finished()]

    async with serving(ScriptedHost(endless)) as served:
        async with served.http.stream(
            "POST", "/v1/chat/completions", json=chat_body(stream=True)
        ) as reply:
            async for line in reply.aiter_lines():
                if "word" in line:
                    break
        await until(lambda: served.host.cancelled == 1, within_s=1)


async def test_the_log_tells_no_secrets(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "runner")
    served.host.script = answer("the reply")
    await served.chat(messages=[{"role": "user", "content": "the prompt"}], model="a\nb")
    await served.http.get("/v1/models?key=hush", headers={"x-api-key": "hush"})
    assert "POST /v1/chat/completions 404" in caplog.text
    assert "model='a\\nb'" in caplog.text
    for secret in ("the prompt", "the reply", "hush"):
        assert secret not in caplog.text


def test_no_client_writes_entries_of_its_own_into_the_log() -> None:
    said = "odd: a\n2026-01-01 ERROR forged\x1b[2J"
    record = logging.LogRecord("runner.http", logging.WARNING, "", 1, said, None, None)
    lines = OneEntry("%(levelname)s %(message)s").format(record).split("\n")
    assert lines == ["WARNING odd: a", "    2026-01-01 ERROR forged\\x1b[2J"]
