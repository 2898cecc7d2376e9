"""Calls as JSON: objects with a name and arguments, whose arguments stream as they come."""

import json
from dataclasses import dataclass

from models.dialects.base import JsonCalls, Section
from models.dialects.desk import Desk, Outcome
from models.dialects.jsonscan import JsonScanner
from models.dialects.reader import Waiting

# What else may stand in a call beside its name and arguments.
_BESIDE = frozenset({"id", "type", "tool_call_id"})


@dataclass(slots=True)
class _Draft:
    """What is known of a call while its object is read."""

    name: str | None = None
    arguments: str | None = None
    """Arguments that came before the name."""
    index: int | None = None
    ended: bool = False

    @property
    def failed(self) -> Outcome:
        """What it is if the object goes on no further."""
        if self.ended:
            return Outcome.CALLED
        return Outcome.NONE if self.index is None else Outcome.BROKEN


class JsonReader:
    """Reads JSON calls, and JSON arguments for others."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._text = desk, desk.reader

    def calls(self, form: JsonCalls, section: Section, *, known_only: bool) -> Waiting[Outcome]:
        """An object, or an array of them."""
        opening = yield from self._text.peek()
        if opening == "{":
            return (yield from self._object(form, section, known_only))
        if opening != "[":
            return Outcome.NONE
        self._text.at += 1
        outcome, end = Outcome.NONE, self._text.at
        while True:
            yield from self._text.skip_space()
            char = yield from self._text.peek()
            if char == "]" and outcome is Outcome.CALLED:
                self._text.at += 1
                return outcome
            if char != "{":
                break
            item = yield from self._object(form, section, known_only)
            if item is Outcome.BROKEN:
                return item
            if item is Outcome.NONE:
                break
            outcome, end = item, self._text.at
            yield from self._text.skip_space()
            if (yield from self._text.peek()) == ",":
                self._text.at += 1
        self._text.at = end
        return outcome

    def stream(self, index: int) -> Waiting[bool]:
        """A JSON value as the arguments of a call; False where it breaks off."""
        scanner, text = JsonScanner(), self._text
        while True:
            text.at = scanner.scan(text.text, text.at)
            stop = scanner.done or scanner.broken
            if not stop and text.ended:
                text.at = scanner.finish(text.at)
            self._desk.emitter.arguments(index, scanner.take())
            if stop or text.ended:
                return scanner.done
            yield

    def _object(self, form: JsonCalls, section: Section, known_only: bool) -> Waiting[Outcome]:
        draft, text = _Draft(), self._text
        text.at += 1
        while True:
            yield from text.skip_space()
            char = yield from text.peek()
            if char == "}":
                text.at += 1
                return self._closed(draft, known_only)
            if char == ",":
                text.at += 1
                continue
            key = (yield from self._value()) if char == '"' else None
            if key is None:
                return draft.failed
            yield from text.skip_space()
            if (yield from text.peek()) != ":":
                return draft.failed
            text.at += 1
            yield from text.skip_space()
            member = json.loads(key)
            if known_only and draft.index is None and not _expected(member, form):
                return Outcome.NONE
            fine = yield from self._member(member, form, section, draft, known_only)
            if not fine:
                return draft.failed

    def _member(
        self, key: str, form: JsonCalls, section: Section, draft: _Draft, known_only: bool
    ) -> Waiting[bool]:
        """One value of a call's object; False where it makes no call."""
        char = yield from self._text.peek()
        if key in form.arguments and not draft.ended:
            return (yield from self._arguments(draft))
        if key in form.names and draft.name is None:
            if char == "{":  # the whole call within another object, as APIs write it
                inner = yield from self._object(form, section, known_only)
                draft.ended = inner is Outcome.CALLED
                draft.index = None if inner is Outcome.NONE else -1
                return draft.ended
            value = (yield from self._value()) if char == '"' else None
            if value is None:
                return False
            draft.name = self._desk.offered.name(json.loads(value), known_only=known_only)
            if draft.name is not None and draft.arguments is not None:
                self._desk.whole(draft.name, draft.arguments)
                draft.ended = True
            return draft.name is not None
        return (yield from self._value()) is not None

    def _arguments(self, draft: _Draft) -> Waiting[bool]:
        char = yield from self._text.peek()
        if char == "{" and draft.name is not None:
            draft.index = self._desk.begin(draft.name)
            draft.ended = yield from self.stream(draft.index)
            if draft.ended:
                self._desk.emitter.end(draft.index)
            return draft.ended
        value = yield from self._value()
        arguments = None if value is None else _as_object(value)
        if arguments is None:
            return False
        if draft.name is None:
            draft.arguments = arguments
        else:
            self._desk.whole(draft.name, arguments)
            draft.ended = True
        return True

    def _closed(self, draft: _Draft, known_only: bool) -> Outcome:
        """The object is complete."""
        if draft.name is not None and not draft.ended and not known_only:
            self._desk.whole(draft.name, "{}")
            draft.ended = True
        return draft.failed

    def _value(self) -> Waiting[str | None]:
        """Step over a JSON value and return it; None where there is none."""
        scanner, text = JsonScanner(), self._text
        while True:
            text.at = scanner.scan(text.text, text.at)
            if scanner.done:
                return scanner.take()
            if scanner.broken or text.ended:
                return None
            yield


def _expected(key: str, form: JsonCalls) -> bool:
    return key in form.names or key in form.arguments or key in _BESIDE


def _as_object(value: str) -> str | None:
    """Arguments as a JSON object: as it is, out of a string that spells one, or empty for null."""
    try:
        parsed: object = json.loads(value)
        if isinstance(parsed, str):
            value = parsed.strip() or "{}"
            parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if parsed is None:
        return "{}"
    return value if isinstance(parsed, dict) else None
