"""Arguments between tags, each emitted as JSON when it is read, strings while they are."""

import re

from models.dialects.base import NamedCalls, Schema, Section, Tags
from models.dialects.desk import Desk, Outcome
from models.dialects.reader import Marks, Waiting
from models.dialects.values import dumped, is_string, property_schema, typed

_KEY = re.compile(r"[^\n<>]")
_LONGEST_KEY = 256
_STRING: Schema = {"type": "string"}


class TagReader:
    """Reads the arguments of one call after another."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._text = desk, desk.reader

    def call(
        self, name: str, tags: Tags, form: NamedCalls, section: Section, written_id: str | None
    ) -> Waiting[Outcome]:
        """The arguments of a call to `name`, which begins where something in the way of arguments
        or of an end is there."""
        text, emitter = self._text, self._desk.emitter
        after = (*form.tail, *section.close)
        yield from text.skip_space()
        if not (yield from text.ahead((tags.open, *after))):
            return Outcome.NONE
        index = self._desk.begin(name, written_id)
        schema = self._desk.offered.parameters(name)
        emitter.arguments(index, "{")
        count = 0
        while True:
            end = text.at
            yield from text.skip_space()
            if (yield from text.match((tags.open,))) is None:
                break
            key, mark = yield from self._key(tags)
            if mark is None:
                text.at = end
                return Outcome.BROKEN
            stated = mark in tags.keyed_text
            prop = _STRING if stated else property_schema(schema, key)
            lead = (", " if count else "") + dumped(key) + ": "
            fine = yield from self._value(index, lead, tags, prop, (tags.open, *after))
            count += 1
            if not fine:
                return Outcome.BROKEN
        # The section's end will do, where the call's own was forgotten.
        ended = (yield from text.match(form.tail)) is not None
        if not ended and not (yield from text.ahead(section.close)):
            text.at = end
            return Outcome.BROKEN
        emitter.arguments(index, "}")
        emitter.end(index)
        return Outcome.CALLED

    def _key(self, tags: Tags) -> Waiting[tuple[str, str | None]]:
        """A key and the mark after it, None where there is no such mark."""
        text, begin = self._text, self._text.at
        keyed = (*tags.keyed, *tags.keyed_text)
        while text.at - begin <= _LONGEST_KEY:
            at = text.at
            mark = yield from text.match(keyed)
            if mark is not None:
                return text.text[begin:at].strip(), mark
            char = yield from text.peek()
            if not char or not _KEY.match(char):
                break
            text.at += 1
        return "", None

    def _value(
        self, index: int, lead: str, tags: Tags, schema: Schema | None, after: tuple[str, ...]
    ) -> Waiting[bool]:
        """One value, up to a closing tag that something follows which may: any other is part of
        the value, as in a file that is about such tags. False where there is none."""
        text, emit = self._text, self._desk.emitter.arguments
        if tags.padded and (yield from text.peek()) == "\n":
            text.at += 1
        start = sent = search = text.at
        streams = is_string(schema)
        if streams:
            emit(index, lead + '"')
        marks = Marks((tags.close,))
        while True:
            if found := marks.first(text.text, search):
                text.at = found.end()
                if (yield from self._closes(after)):
                    end = _unpadded(text.text, start, found.start(), tags)
                    if streams:
                        emit(index, _escaped(text.text[sent:end]) + '"')
                    else:
                        emit(index, lead + typed(text.text[start:end], schema))
                    text.at = found.end()
                    return True
                search = found.start() + 1
                continue
            search = marks.begun(text.text, search)
            safe = len(text.text) if text.ended else _unpadded(text.text, sent, search, tags)
            if streams:
                emit(index, _escaped(text.text[sent:safe]))
                sent = safe
            if text.ended:
                text.at = safe if streams else start
                return False
            yield

    def _closes(self, after: tuple[str, ...]) -> Waiting[bool]:
        yield from self._text.skip_space()
        at_end = (yield from self._text.peek()) == ""
        return at_end or (yield from self._text.ahead(after))


def _unpadded(text: str, start: int, end: int, tags: Tags) -> int:
    return end - 1 if tags.padded and end > start and text[end - 1] == "\n" else end


def _escaped(text: str) -> str:
    return dumped(text)[1:-1]
