"""A response as it is sent: the whole object, or the stream of events that leads up to it."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from app.api import accounts
from app.api.errors import Fault
from app.api.generations import Piece
from app.api.parts import JSON
from app.api.reply import Answer, frame
from app.api.responses.fields import Asked, ResponseFields
from app.api.responses.ids import new_id
from app.api.responses.output import Output
from app.api.responses.sealed import Seal
from models.chat import (
    Finished,
    FinishReason,
    Loading,
    Prefill,
    Priority,
    Usage,
)


class ResponsesDialect:
    """Writes one response. `keep` is given each one that came to its end; with a `seal`, thoughts
    come with a sealed copy."""

    def __init__(
        self,
        body: ResponseFields,
        asked: Asked,
        keep: Callable[[JSON], None],
        seal: Seal | None = None,
    ) -> None:
        self._head = _head(body, asked)
        self._output = Output(asked.toolbox, seal, with_logprobs=body.wants_logprobs)
        self._progress = bool(body.return_progress)
        self._keep = keep
        self._number = 0
        self._end: Finished | None = None

    def opening(self, prompt_tokens: int | None) -> Iterable[bytes]:
        yield self._told("response.created", response=self._response())
        yield self._told("response.in_progress", response=self._response())

    def pieces(self, piece: Piece) -> Iterable[bytes]:
        match piece.event:
            case Prefill(done, total, cached) if self._progress:
                yield self._busy({"total": total, "cache": cached, "processed": done})
            case Loading(fraction) if self._progress:
                yield self._busy({"loaded": round(fraction, 4)})
            case Finished() as end:
                self._end = end
                yield from self._frames(self._output.take(end))
            case event:
                yield from self._frames(self._output.take(event))

    def idle(self, choice: int) -> bytes:
        return self._busy()

    def closing(self) -> Iterable[bytes]:
        assert self._end is not None
        response = self._finished(self._end)
        # Before the last event is out, so that a client can refer to what it has seen.
        self._keep(response)
        yield self._told(f"response.{response['status']}", response=response)

    def failure(self, fault: Fault) -> Iterable[bytes]:
        code = fault.code or "server_error"
        error = {"code": code, "message": fault.message, "param": fault.param}
        # Old clients read the error's fields beside the type, newer ones inside `error`.
        yield self._told("error", **error, error={"type": fault.type, **error})
        output = [
            item | {"status": "incomplete"} if item["status"] == "in_progress" else item
            for item in self._output.items()
        ]
        told = {"code": code, "message": fault.message}
        response = self._response(status="failed", error=told, output=output)
        yield self._told("response.failed", response=response)

    def whole(self, answers: Sequence[Answer]) -> JSON:
        answer = answers[0]
        for event in answer.events:
            for _ in self._output.take(event):
                pass
        response = self._finished(Finished(answer.reason, answer.usage, answer.timings))
        self._keep(response)
        return response

    def _busy(self, progress: JSON | None = None) -> bytes:
        more = {} if progress is None else {"prompt_progress": progress}
        return self._told("response.in_progress", response=self._response(), **more)

    def _frames(self, events: Iterator[JSON]) -> Iterator[bytes]:
        for event in events:
            yield self._told(**event)

    def _told(self, type: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return frame({"type": type, "sequence_number": number, **fields}, type)

    def _response(self, **changed: Any) -> JSON:
        return self._head | changed

    def _finished(self, end: Finished) -> JSON:
        cut_short = end.reason is FinishReason.LENGTH
        return self._response(
            status="incomplete" if cut_short else "completed",
            completed_at=None if cut_short else int(time.time()),
            incomplete_details={"reason": "max_output_tokens"} if cut_short else None,
            output=self._output.items(),
            usage=_usage(end.usage),
            timings=accounts.timings(end.timings, end.usage),
        )


def _usage(used: Usage) -> JSON:
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
        "total_tokens": used.prompt_tokens + used.completion_tokens,
    }


def _head(body: ResponseFields, asked: Asked) -> JSON:
    """All of a response that is known before it begins."""
    request, reasoning = asked.request, body.reasoning or {}
    tier = "flex" if request.priority is Priority.BATCH else "default"
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "completed_at": None,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "model": body.model,
        "output": [],
        "parallel_tool_calls": request.tool_choice.parallel,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": body.safety_identifier,
        "service_tier": tier,
        "store": body.kept,
        "temperature": request.sampling.temperature,
        "text": {"format": {"type": "text"}} | (body.text or {}),
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": request.sampling.top_p,
        "truncation": "disabled",  # "auto" is taken and means the same: nothing is cut silently
        "usage": None,
        "user": body.user,
        "metadata": body.metadata or {},
    }
