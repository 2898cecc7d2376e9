"""An answer as Anthropic's message, whole or as a stream of blocks."""

import json
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from app.api.errors import Fault, messages_error
from app.api.generations import Piece
from app.api.reply import Answer, frame
from models.chat import (
    Event,
    Finished,
    FinishReason,
    Reasoning,
    Text,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)

_REASONS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
}
# Clients send it back with the block; whoever thought here needs no proof of it.
_SIGNATURE = "runner"


class MessagesDialect:
    """Writes one message. Its blocks are never open two at a time."""

    def __init__(self, model: str) -> None:
        self._head = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._index = -1
        self._open: str | None = None
        self._end: Finished | None = None

    # ---------------------------------------------------------------------- streamed

    def opening(self, prompt_tokens: int | None) -> Iterable[bytes]:
        usage = _usage(Usage(prompt_tokens or 0, 0))
        message: dict[str, Any] = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        yield _event("message_start", {"message": message})
        yield self.idle(0)

    def pieces(self, piece: Piece) -> Iterable[bytes]:
        match piece.event:
            case Text(text) if text:
                yield from self._within("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case Reasoning(text) if text:
                block = {"type": "thinking", "thinking": "", "signature": ""}
                yield from self._within("thinking", block)
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case ToolCallStart(_, id, name):
                yield from self._close()
                block: dict[str, Any] = {"type": "tool_use", "id": id, "name": name, "input": {}}
                yield from self._within("tool_use", block)
            case ToolCallDelta(_, arguments) if arguments:
                yield self._delta({"type": "input_json_delta", "partial_json": arguments})
            case ToolCallEnd():
                yield from self._close()
            case Finished() as end:
                self._end = end
            case _:
                pass

    def idle(self, choice: int) -> bytes:
        return _event("ping", {})

    def closing(self) -> Iterable[bytes]:
        assert self._end is not None
        yield from self._close()
        delta = _stop(self._end.reason, self._end.stop)
        yield _event("message_delta", {"delta": delta, "usage": _usage(self._end.usage)})
        yield _event("message_stop", {})

    def failure(self, fault: Fault) -> Iterable[bytes]:
        yield _event("error", {"error": messages_error(fault)})

    def _within(self, kind: str, block: dict[str, Any]) -> Iterable[bytes]:
        """Open a block of the kind, unless one is open."""
        if self._open == kind:
            return
        yield from self._close()
        self._index, self._open = self._index + 1, kind
        yield _event("content_block_start", {"index": self._index, "content_block": block})

    def _close(self) -> Iterable[bytes]:
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": _SIGNATURE})
        self._open = None
        yield _event("content_block_stop", {"index": self._index})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})

    # ---------------------------------------------------------------------- whole

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        (answer,) = answers
        end = next((e for e in answer.events if isinstance(e, Finished)), None)
        stop = _stop(answer.reason, end.stop if end is not None else None)
        return {
            **self._head,
            "content": _blocks(answer.events),
            **stop,
            "usage": _usage(answer.usage),
        }


def _event(name: str, data: dict[str, Any]) -> bytes:
    return frame({"type": name, **data}, name)


def _stop(reason: FinishReason, stop: str | None) -> dict[str, Any]:
    return {
        "stop_reason": _REASONS[reason] if stop is None else "stop_sequence",
        "stop_sequence": stop,
    }


def _usage(used: Usage) -> dict[str, int]:
    """The parts of the prompt are disjoint: clients add them up."""
    return {
        "input_tokens": used.prompt_tokens - used.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.cached_tokens,
        "output_tokens": used.completion_tokens,
    }


def _blocks(events: Sequence[Event]) -> list[dict[str, Any]]:
    """What was said, in order; neighbours of one kind are one block."""
    blocks: list[dict[str, Any]] = []
    arguments: dict[int, list[str]] = {}
    places: dict[int, dict[str, Any]] = {}
    for event in events:
        last = blocks[-1] if blocks else {}
        match event:
            case Text(text) if text and last.get("type") == "text":
                last["text"] += text
            case Text(text) if text:
                blocks.append({"type": "text", "text": text})
            case Reasoning(text) if text and last.get("type") == "thinking":
                last["thinking"] += text
            case Reasoning(text) if text:
                blocks.append({"type": "thinking", "thinking": text, "signature": _SIGNATURE})
            case ToolCallStart(index, id, name):
                places[index] = {"type": "tool_use", "id": id, "name": name, "input": {}}
                blocks.append(places[index])
                arguments[index] = []
            case ToolCallDelta(index, piece):
                arguments[index].append(piece)
            case _:
                pass
    for index, pieces in arguments.items():
        places[index]["input"] = _object("".join(pieces))
    return blocks


def _object(text: str) -> Any:
    """A call's arguments; a call that was cut short has none that can be read."""
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {}
