"""One HTTP reply to generations, streamed or whole: commit rule, keep-alive, leaving clients."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from app.api.errors import Fault, fault_of
from app.api.generations import Generations, Piece
from models.chat import (
    Event,
    Finished,
    FinishReason,
    Logprobs,
    Prompted,
    Reasoning,
    Request,
    Text,
    Timings,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from runtimes.base import Runtime

logger = logging.getLogger("runner.http")

EVENT_STREAM = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long an error may still become an HTTP status, and how long a stream may be silent.

    Clients hang up on silence and send the whole request again; only real events count for them."""

    commit_after_s: float = 0.8
    keepalive_s: float = 8.0


@dataclass(slots=True)
class Answer:
    """One choice, gathered; `events` keeps the order in which things were said."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    prompted: Prompted | None = None
    reason: FinishReason = FinishReason.STOP
    usage: Usage = field(default_factory=lambda: Usage(0, 0))
    timings: Timings = field(default_factory=Timings)
    events: list[Event] = field(default_factory=list[Event])

    def add(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case Text(text):
                self.text.append(text)
            case Reasoning(text):
                self.reasoning.append(text)
            case Prompted():
                self.prompted = event
            case Logprobs(tokens):
                self.logprobs.extend(tokens)
            case ToolCallStart(_, id, name):
                self.calls.append(ToolCall(id, name, ""))
            case ToolCallDelta(index, arguments):
                call = self.calls[index]
                self.calls[index] = ToolCall(call.id, call.name, call.arguments + arguments)
            case Finished(reason, usage, timings):
                self.reason, self.usage, self.timings = reason, usage, timings
            case _:
                pass


class Dialect(Protocol):
    """How one API writes an answer. A stream is `opening`, `pieces` and `idle`, then `closing` or
    `failure`; frames are ready to be sent. The prompt's tokens are None where the stream opens
    before they are counted."""

    def opening(self, prompt_tokens: int | None) -> Iterable[bytes]: ...

    def pieces(self, piece: Piece) -> Iterable[bytes]: ...

    def idle(self, choice: int) -> bytes: ...

    def closing(self) -> Iterable[bytes]: ...

    def failure(self, fault: Fault) -> Iterable[bytes]: ...

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]: ...


def frame(data: object, event: str | None = None) -> bytes:
    """A server-sent event, with a name where a dialect gives it one."""
    name = f"event: {event}\n".encode() if event else b""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return name + b"data: " + text.encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class Reply(Response):
    """Runs the requests when it is sent, and stops them when the client goes away."""

    def __init__(
        self,
        runtime: Runtime,
        requests: Sequence[Request],
        dialect: Dialect,
        pace: Pace,
        *,
        stream: bool,
        headers: Sequence[tuple[bytes, bytes]] = EVENT_STREAM,
    ) -> None:
        super().__init__()
        self._stream_headers = headers
        self._runtime = runtime
        self._requests = requests
        self._dialect = dialect
        self._pace = pace
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._streamed(send) if self._stream else self._whole(scope, receive, send)
        await while_connected(receive, work)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        answers = [Answer() for _ in self._requests]
        async with Generations(self._runtime, self._requests) as generations:
            while generations.open:
                if piece := await generations.next(None):
                    answers[piece.choice].add(piece.event)
        await JSONResponse(self._dialect.whole(answers))(scope, receive, send)

    async def _streamed(self, send: Send) -> None:
        async with Generations(self._runtime, self._requests) as generations:
            await generations.settle(self._pace.commit_after_s)
            await send(
                {"type": "http.response.start", "status": 200, "headers": self._stream_headers}
            )
            await _write(send, self._dialect.opening(generations.prompt_tokens))
            try:
                await self._run(send, generations)
                await _write(send, self._dialect.closing())
            except Exception as error:  # the status is out: what went wrong becomes an event
                if (fault := fault_of(error)).code == "internal_error":
                    logger.exception("a stream ended by an unexpected error")
                else:
                    logger.warning("a stream ended: %s", fault.message)
                await _write(send, self._dialect.failure(fault))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _run(self, send: Send, generations: Generations) -> None:
        clock = asyncio.get_running_loop().time
        due = clock() + self._pace.keepalive_s
        while generations.open:
            piece = await generations.next(max(0.0, due - clock()))
            frames = b"" if piece is None else b"".join(self._dialect.pieces(piece))
            if not frames and clock() >= due and generations.open:
                frames = self._dialect.idle(min(generations.open))
            if frames:
                await _write(send, [frames])
                due = clock() + self._pace.keepalive_s


async def _write(send: Send, frames: Iterable[bytes]) -> None:
    if body := b"".join(frames):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, and cancel it as soon as the client is gone."""
    job = asyncio.create_task(work, name="reply")
    watch = asyncio.create_task(_gone(receive), name="reply-watch")
    try:
        await asyncio.wait((job, watch), return_when=asyncio.FIRST_COMPLETED)
        if job.done():
            job.result()
        else:
            logger.debug("the client went away")
    finally:
        job.cancel()
        watch.cancel()
        await asyncio.gather(job, watch, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
