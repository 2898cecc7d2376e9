"""The kinds of output items: how each begins, grows and ends, event by event."""

import json
from collections.abc import Iterator, Sequence
from typing import Protocol

from app.api import accounts
from app.api.parts import JSON
from app.api.responses.freetext import FreeText
from app.api.responses.ids import new_id
from app.api.responses.sealed import Seal
from app.api.responses.tools import Offered
from models.chat import TokenLogprob


class OutputItem(Protocol):
    """One item of a response's output."""

    def begin(self) -> Iterator[JSON]: ...

    def end(self, *, complete: bool) -> Iterator[JSON]: ...

    def shown(self) -> JSON: ...


class CallItem(OutputItem, Protocol):
    """A call of a tool."""

    @property
    def is_whole(self) -> bool: ...

    def push(self, arguments: str) -> Iterator[JSON]: ...


def _status(complete: bool) -> str:
    return "completed" if complete else "incomplete"


class _Frame:
    """What the events of one item share."""

    def __init__(self, prefix: str, index: int) -> None:
        self.id, self._index = new_id(prefix), index
        self.status = "in_progress"

    def event(self, kind: str, **more: object) -> JSON:
        where = {"item_id": self.id, "output_index": self._index}
        return {"type": f"response.{kind}", **where, **more}

    def added(self, item: JSON) -> JSON:
        return {
            "type": "response.output_item.added",
            "output_index": self._index,
            "item": item,
        }

    def done(self, item: JSON) -> JSON:
        return {"type": "response.output_item.done", "output_index": self._index, "item": item}


class MessageItem:
    """Text for the reader."""

    def __init__(self, index: int) -> None:
        self._frame = _Frame("msg", index)
        self._text: list[str] = []
        self._logprobs: list[JSON] = []

    def begin(self) -> Iterator[JSON]:
        yield self._frame.added(self.shown() | {"content": []})
        part: JSON = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield self._frame.event("content_part.added", content_index=0, part=part)

    def push(self, text: str, logprobs: Sequence[TokenLogprob]) -> Iterator[JSON]:
        entries = accounts.chat_logprobs(logprobs)["content"]
        self._text.append(text)
        self._logprobs.extend(entries)
        yield self._frame.event("output_text.delta", content_index=0, delta=text, logprobs=entries)

    def end(self, *, complete: bool) -> Iterator[JSON]:
        self._frame.status = _status(complete)
        part = self._part()
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        yield self._frame.event("output_text.done", content_index=0, **done)
        yield self._frame.event("content_part.done", content_index=0, part=part)
        yield self._frame.done(self.shown())

    def shown(self) -> JSON:
        return {
            "id": self._frame.id,
            "type": "message",
            "status": self._frame.status,
            "role": "assistant",
            "content": [self._part()],
        }

    def _part(self) -> JSON:
        return {
            "type": "output_text",
            "text": "".join(self._text),
            "annotations": [],
            "logprobs": self._logprobs,
        }


class ReasoningItem:
    """What the model thinks, in the clear."""

    def __init__(self, index: int, seal: Seal | None = None) -> None:
        self._frame = _Frame("rs", index)
        self._seal = seal
        self._text: list[str] = []

    def begin(self) -> Iterator[JSON]:
        yield self._frame.added(self.shown() | {"content": []})

    def push(self, text: str) -> Iterator[JSON]:
        self._text.append(text)
        yield self._frame.event("reasoning_text.delta", content_index=0, delta=text)

    def end(self, *, complete: bool) -> Iterator[JSON]:
        self._frame.status = _status(complete)
        text = "".join(self._text)
        yield self._frame.event("reasoning_text.done", content_index=0, text=text)
        yield self._frame.done(self.shown())

    def shown(self) -> JSON:
        text = "".join(self._text)
        item: JSON = {
            "id": self._frame.id,
            "type": "reasoning",
            "status": self._frame.status,
            "summary": [],
            "content": [{"type": "reasoning_text", "text": text}],
        }
        return item if self._seal is None else item | {"encrypted_content": self._seal.close(text)}


class FunctionCallItem:
    """A call whose arguments are JSON."""

    def __init__(self, index: int, call_id: str, tool: Offered) -> None:
        self._frame = _Frame("fc", index)
        self._call_id, self._tool = call_id, tool
        self._arguments: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are JSON to their end, or there are none."""
        return _is_json("".join(self._arguments))

    def begin(self) -> Iterator[JSON]:
        yield self._frame.added(self.shown())

    def push(self, arguments: str) -> Iterator[JSON]:
        if arguments:
            self._arguments.append(arguments)
            yield self._frame.event("function_call_arguments.delta", delta=arguments)

    def end(self, *, complete: bool) -> Iterator[JSON]:
        self._frame.status = _status(complete)
        if complete and not self._arguments:  # clients parse them
            yield from self.push("{}")
        done = {"name": self._tool.name, "arguments": "".join(self._arguments)}
        yield self._frame.event("function_call_arguments.done", **done)
        yield self._frame.done(self.shown())

    def shown(self) -> JSON:
        return {
            "id": self._frame.id,
            "type": "function_call",
            "status": self._frame.status,
            **_named(self._call_id, self._tool),
            "arguments": "".join(self._arguments),
        }


class CustomCallItem:
    """A call whose input is free text."""

    def __init__(self, index: int, call_id: str, tool: Offered) -> None:
        self._frame = _Frame("ctc", index)
        self._call_id, self._tool = call_id, tool
        self._input = FreeText()

    @property
    def is_whole(self) -> bool:
        """Whether the input came to its end."""
        return _is_json(self._input.arguments)

    def begin(self) -> Iterator[JSON]:
        yield self._frame.added(self.shown())

    def push(self, arguments: str) -> Iterator[JSON]:
        yield from self._delta(self._input.push(arguments))

    def end(self, *, complete: bool) -> Iterator[JSON]:
        self._frame.status = _status(complete)
        yield from self._delta(self._input.finish())
        yield self._frame.event("custom_tool_call_input.done", input=self._input.text)
        yield self._frame.done(self.shown())

    def shown(self) -> JSON:
        return {
            "id": self._frame.id,
            "type": "custom_tool_call",
            "status": self._frame.status,
            **_named(self._call_id, self._tool),
            "input": self._input.text,
        }

    def _delta(self, text: str) -> Iterator[JSON]:
        if text:
            yield self._frame.event("custom_tool_call_input.delta", delta=text)


def _named(call_id: str, tool: Offered) -> JSON:
    named = {"call_id": call_id, "name": tool.name}
    return named if tool.namespace is None else named | {"namespace": tool.namespace}


def _is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return True
