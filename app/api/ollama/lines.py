"""Ollama's answers: one JSON object a line, the last one with what the answer cost."""

import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from app.api import accounts
from app.api.errors import Fault
from app.api.generations import Piece
from app.api.notices import Notices
from app.api.reply import Answer
from models.chat import (
    Event,
    Finished,
    FinishReason,
    Loading,
    Logprobs,
    Reasoning,
    Request,
    Started,
    Text,
    Timings,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from runtimes.base import ModelHost

MEDIA_TYPE = "application/x-ndjson"
LINES = [
    (b"content-type", MEDIA_TYPE.encode()),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_REASONS = {FinishReason.LENGTH: "length"}  # a call of a tool is a stop, too

Part = dict[str, Any]
Shape = Callable[[Part], dict[str, Any]]
"""Where a part of an answer stands: a `content`, with `thinking` or `tool_calls` where given."""


def line(data: dict[str, Any]) -> bytes:
    """One object, ready to be sent."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def now() -> str:
    """This moment as Ollama writes it."""
    return moment(datetime.now(UTC))


def moment(when: datetime) -> str:
    """A time of the world's clock as Ollama writes it."""
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def in_message(part: Part) -> dict[str, Any]:
    """Of a chat."""
    return {"message": {"role": "assistant", **part}}


def in_response(part: Part) -> dict[str, Any]:
    """Of a generation, which calls no tools."""
    return {"response": part["content"], **{k: v for k, v in part.items() if k == "thinking"}}


class Watched:
    """The host during one request. It measures how long the model took to load, and says where a
    client plans with more context than there is."""

    def __init__(self, host: ModelHost, notices: Notices, num_ctx: int = 0) -> None:
        self.load_s = 0.0
        self._host = host
        self._notices = notices
        self._num_ctx = num_ctx

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Runtime`."""
        began = time.monotonic()
        async with contextlib.aclosing(self._host.generate(request)) as events:
            async for event in events:
                match event:
                    case Loading():
                        self.load_s = time.monotonic() - began
                    case Started(context=context) if context < self._num_ctx:
                        self._notices.once(
                            f"{ascii(request.model)[1:-1]}: num_ctx is {self._num_ctx}, and "
                            f"{context} tokens are served; --ctx sets them (said once)"
                        )
                    case _:
                        pass
                yield event


class LoadsOnly(Watched):
    """A request without a prompt: the model is loaded, and that is all."""

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Runtime`."""
        began = time.monotonic()
        async with contextlib.aclosing(self._host.load(request.model)) as steps:
            async for step in steps:
                yield step
        self.load_s = time.monotonic() - began
        yield Finished(FinishReason.STOP, Usage(0, 0), Timings())


class OllamaDialect:
    """Writes one answer. `reason` stands in for how it ended, where nothing was generated."""

    def __init__(
        self, model: str, shape: Shape, watched: Watched, reason: str | None = None
    ) -> None:
        self._model = model
        self._shape = shape
        self._watched = watched
        self._reason = reason
        self._began = time.monotonic()
        self._calls: dict[int, ToolCall] = {}
        self._called = 0
        self._logprobs: list[TokenLogprob] = []

    def opening(self, prompt_tokens: int | None) -> Iterable[bytes]:
        return ()

    def pieces(self, piece: Piece) -> Iterable[bytes]:
        match piece.event:
            case Text(text) if text:
                yield self._line({"content": text})
            case Reasoning(text) if text:
                yield self._line({"content": "", "thinking": text})
            case Logprobs(tokens):
                self._logprobs.extend(tokens)
            case ToolCallStart(index, id, name):
                self._calls[index] = ToolCall(id, name, "")
            case ToolCallDelta(index, arguments):
                call = self._calls[index]
                self._calls[index] = ToolCall(call.id, call.name, call.arguments + arguments)
            case ToolCallEnd(index):
                yield self._line(self._called_with([self._calls.pop(index)]))
            case Finished() as end:
                if self._calls:  # cut short
                    yield self._line(self._called_with([*self._calls.values()]))
                yield line(self._object({"content": ""}) | self._end(end))
            case _:
                pass

    def idle(self, choice: int) -> bytes:
        return self._line({"content": ""})

    def closing(self) -> Iterable[bytes]:
        return ()

    def failure(self, fault: Fault) -> Iterable[bytes]:
        yield line({"error": fault.message})

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        answer = answers[0]
        part: Part = {"content": "".join(answer.text)}
        if answer.reasoning:
            part["thinking"] = "".join(answer.reasoning)
        if answer.calls:
            called = self._called_with(answer.calls)
            part = {**part, **called, "content": part["content"] + called["content"]}
        self._logprobs.extend(answer.logprobs)
        end = Finished(answer.reason, answer.usage, answer.timings)
        return self._object(part) | self._end(end)

    def _line(self, part: Part) -> bytes:
        return line(self._object(part) | {"done": False})

    def _object(self, part: Part) -> dict[str, Any]:
        data = {"model": self._model, "created_at": now(), **self._shape(part)}
        if self._logprobs:
            data["logprobs"] = accounts.chat_logprobs(self._logprobs)["content"]
            self._logprobs = []
        return data

    def _called_with(self, calls: Sequence[ToolCall]) -> Part:
        """Calls as objects. What was cut short is none: it is shown as it came."""
        whole: list[dict[str, Any]] = []
        broken = ""
        for call in calls:
            arguments = _object_in(call.arguments)
            if arguments is None:
                broken += call.arguments
                continue
            function = {"index": self._called, "name": call.name, "arguments": arguments}
            whole.append({"id": call.id, "function": function})
            self._called += 1
        return {"content": broken, "tool_calls": whole} if whole else {"content": broken}

    def _end(self, end: Finished) -> dict[str, Any]:
        """Durations are in nanoseconds."""
        usage, timings = end.usage, end.timings
        return {
            "done": True,
            "done_reason": self._reason or _REASONS.get(end.reason, "stop"),
            "total_duration": _ns(time.monotonic() - self._began),
            "load_duration": _ns(self._watched.load_s),
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_duration": _ns(timings.prefill_s),
            "eval_count": usage.completion_tokens,
            "eval_duration": _ns(timings.decode_s),
        }


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)


def _object_in(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None
