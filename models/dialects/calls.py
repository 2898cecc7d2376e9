"""Reads the calls of a section, in whatever form its family writes them.

A call begins as soon as its name and the beginning of its arguments are certain, for arguments
stream. What turns out to be no call before that is left for the machine to show as text. What
breaks off later has begun already: the call has no end event, its arguments are what came of them,
and the text from where it broke is shown as text.
"""

import re

from models.dialects.base import Braces, Form, JsonCalls, NamedCalls, PythonCalls, Section
from models.dialects.desk import Desk, Outcome
from models.dialects.ids import name_in
from models.dialects.jsoncalls import JsonReader
from models.dialects.literals import PYTHON, Balance, Style, braces, keywords, mapping
from models.dialects.reader import Waiting
from models.dialects.tagged import TagReader
from models.dialects.values import as_mapping, dumped

_NAME = re.compile(r"[\w.:/\-]")
_LONGEST_NAME = 256
_BETWEEN = (",", ";")
_SURPLUS = ("}", "]")


class CallReader:
    """Reads sections of calls."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._text = desk, desk.reader
        self._json = JsonReader(desk)
        self._tags = TagReader(desk)

    def section(self, section: Section, *, known_only: bool) -> Waiting[bool]:
        """What follows a section's opening mark; False where that is no call. The reader is then
        where it was."""
        text, start = self._text, self._text.at
        known_only = known_only or section.offered_only or not section.open
        outcome = yield from self._call(section, known_only)
        if outcome is Outcome.NONE:
            text.at = start
            return False
        while outcome is Outcome.CALLED:
            text.forget()
            if (yield from self._closed(section)):
                return True
            start = text.at
            yield from text.skip_space()
            if (yield from text.match(_BETWEEN)) is not None:
                yield from text.skip_space()
            outcome = yield from self._call(section, known_only)
            if outcome is Outcome.NONE:
                text.at = start
        return True

    def _call(self, section: Section, known_only: bool) -> Waiting[Outcome]:
        """One call, or one array of them."""
        text = self._text
        yield from text.skip_space()
        start = text.at
        for form in section.forms:
            text.at = start
            outcome = yield from self._in_form(form, section, known_only)
            if outcome is not Outcome.NONE:
                return outcome
        return Outcome.NONE

    def _in_form(self, form: Form, section: Section, known_only: bool) -> Waiting[Outcome]:
        match form:
            case JsonCalls():
                return (yield from self._json.calls(form, section, known_only=known_only))
            case PythonCalls():
                return (yield from self._python(form, known_only))
            case NamedCalls():
                return (yield from self._named(form, section, known_only))

    def _closed(self, section: Section) -> Waiting[bool]:
        """Step over the section's end if it is here, with brackets too many before it."""
        text, start = self._text, self._text.at
        while True:
            yield from text.skip_space()
            if (yield from text.match(section.close)) is not None:
                return True
            if not section.close or (yield from text.match(_SURPLUS)) is None:
                text.at = start
                return False

    # ----------------------------------------------------------------------- a name and arguments

    def _named(self, form: NamedCalls, section: Section, known_only: bool) -> Waiting[Outcome]:
        text = self._text
        if (yield from text.match(form.head)) is None:
            return Outcome.NONE
        yield from text.skip_space()
        written = yield from text.run(_NAME, _LONGEST_NAME)
        name = self._desk.offered.name(name_in(written), known_only=known_only)
        if name is None:
            return Outcome.NONE
        yield from text.skip_space()
        written_id = None if form.id_mark else written
        if form.id_mark and (yield from text.match((form.id_mark,))):
            written_id = yield from text.run(_NAME, _LONGEST_NAME)
            yield from text.skip_space()
        if (yield from text.match(form.named)) is None:
            return Outcome.NONE
        return (yield from self._arguments(form, section, name, written_id))

    def _arguments(
        self, form: NamedCalls, section: Section, name: str, written_id: str | None
    ) -> Waiting[Outcome]:
        text = self._text
        yield from text.skip_space()
        opening = yield from text.peek()
        if isinstance(form.arguments, Braces):
            style = braces(form.arguments.quotes)
            body = (yield from self._balanced(style)) if opening == "{" else None
            arguments = None if body is None else mapping(body, style)
            if arguments is None:
                return Outcome.NONE
            self._desk.whole(name, dumped(arguments), written_id)
        elif opening == "{":
            index = self._desk.begin(name, written_id)
            if not (yield from self._json.stream(index)):
                return Outcome.BROKEN
            self._desk.emitter.end(index)
        elif form.arguments is not None:
            return (yield from self._tags.call(name, form.arguments, form, section, written_id))
        elif form.tail and (yield from text.ahead(form.tail)):
            self._desk.whole(name, "{}", written_id)
        else:
            return Outcome.NONE
        end = text.at
        yield from text.skip_space()
        if (yield from text.match(form.tail)) is None:
            text.at = end
        return Outcome.CALLED

    # ----------------------------------------------------------------------------- Python's calls

    def _python(self, form: PythonCalls, known_only: bool) -> Waiting[Outcome]:
        text = self._text
        listed = (yield from text.match(("[",))) is not None
        if form.listed and not listed:
            return Outcome.NONE
        outcome, end = Outcome.NONE, text.at
        while True:
            yield from text.skip_space()
            if listed and outcome is Outcome.CALLED and (yield from text.match(("]",))):
                return outcome
            if not (yield from self._python_call(known_only)):
                break
            outcome, end = Outcome.CALLED, text.at
            yield from text.skip_space()
            if not listed:
                break
            if (yield from text.match((",",))) is None and not (yield from text.ahead(("]",))):
                break
        text.at = end
        return outcome

    def _python_call(self, known_only: bool) -> Waiting[bool]:
        text = self._text
        written = yield from text.run(_NAME, _LONGEST_NAME)
        name = self._desk.offered.name(written, known_only=known_only)
        if name is None or (yield from text.peek()) != "(":
            return False
        body = yield from self._balanced(PYTHON)
        if body is None:
            return False
        parameters = as_mapping(self._desk.offered.parameters(name).get("properties"))
        arguments = keywords(body, list(parameters))
        if arguments is None:
            return False
        self._desk.whole(name, dumped(arguments))
        return True

    def _balanced(self, style: Style) -> Waiting[str | None]:
        """The text from the bracket here to the one that closes it; None where none does."""
        text, start, balance = self._text, self._text.at, Balance(style)
        while True:
            text.at, closed = balance.scan(text.text, text.at, ended=text.ended)
            if closed:
                return text.text[start : text.at]
            if text.ended:
                return None
            yield
