"""What a dialect is: the marks a family of models sets around its reasoning and its tool calls.

A dialect is data. `models/dialects/stream.py` is the one machine that reads by it, and
`models/dialects/grammar.py` turns the same data into a grammar that a model can be held to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Ids(StrEnum):
    """How the ids of calls look."""

    CALL = "call"
    """`call_` and 24 hexadecimal digits."""
    NINE = "nine"
    """Nine letters and digits; templates of the Mistral family refuse any other."""
    NUMBERED = "numbered"
    """`functions.NAME:N`, written by the model itself and counted over the conversation."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """A pair of marks around reasoning. Where they are tokens of their own (`special`) they count
    anywhere; else only where an answer has not begun to say anything, since a model may well write
    about `<think>`."""

    start: str
    end: str
    special: bool = False


THINK = Thinking("<think>", "</think>")


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """A call is a JSON object that has a name and arguments, or an array of such objects."""

    names: tuple[str, ...] = ("name", "tool_name", "function")
    arguments: tuple[str, ...] = ("arguments", "parameters")


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """Calls are written as Python does, `f(a=1)`, with values that are literals. `listed`: only
    inside square brackets."""

    listed: bool = False


@dataclass(frozen=True, slots=True)
class Tags:
    """Arguments between marks, each with its key; a value has the type that the tool's schema gives
    it. `open` KEY `keyed` VALUE `close`. A key followed by `keyed_text` is a string whatever the
    schema says. `padded`: one line break on each side of a value belongs to the marks."""

    open: str
    keyed: tuple[str, ...]
    close: str
    keyed_text: tuple[str, ...] = ()
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Braces:
    """Arguments as `{key:value}`, keys bare and strings between a pair of the same mark."""

    quotes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """A call is a name and its arguments with marks around: `head` NAME `named` ARGUMENTS `tail`.

    Of several marks any may stand; an empty one stands for nothing at all. Where `arguments` is
    None they are a JSON object. What follows `id_mark` after the name is the call's id.
    """

    head: tuple[str, ...]
    named: tuple[str, ...]
    tail: tuple[str, ...] = ()
    arguments: Tags | Braces | None = None
    id_mark: str | None = None


Form = JsonCalls | PythonCalls | NamedCalls


@dataclass(frozen=True, slots=True)
class Section:
    """A stretch of calls: one of the `open` marks, calls in one of the `forms`, and perhaps one of
    the `close` marks.

    Without an `open` mark it can only be where an answer begins. `offered_only`: what it opens with
    is common in text, so that only the name of a tool that was offered makes a call.
    """

    open: tuple[str, ...]
    forms: tuple[Form, ...]
    close: tuple[str, ...] = ()
    offered_only: bool = False


@dataclass(frozen=True, slots=True)
class Channels:
    """An answer in messages, each with a header that says which channel it is on and to whom it
    goes: `start` ROLE `channel` NAME to=RECIPIENT `message` TEXT, up to one of `ends`."""

    start: str
    channel: str
    message: str
    constrain: str
    ends: tuple[str, ...]
    thinking: tuple[str, ...]
    """The channels whose text is reasoning."""
    names: tuple[str, ...]
    """All channels."""
    functions: str
    """What stands before a tool's name in a recipient."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A call to the letter, as the family's template writes it: what a grammar holds a model to.

    `begin`, then calls with `between` between them, then `end`. A call is `head` NAME `named`
    ARGUMENTS `tail`. `counted`: the name is followed by a colon and a number. Where a call may
    follow or the end, the one mark must not begin with the other: a grammar's lexer takes the
    longest and never goes back.
    """

    head: str
    named: str
    tail: str = ""
    begin: str = ""
    between: str | None = None
    """None: one call is all the family can write."""
    end: str = ""
    arguments: Tags | None = None
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """One family's way to write. `ends` is markup that is never part of an answer's text."""

    name: str
    sections: tuple[Section, ...] = ()
    thinking: tuple[Thinking, ...] = (THINK,)
    ends: tuple[str, ...] = ()
    ids: Ids = Ids.CALL
    channels: Channels | None = None
    layout: Layout | None = None

    def opened_by(self, prompt: str) -> Thinking | None:
        """The reasoning that a prompt's end has opened already, if any."""
        end = prompt.rstrip()
        longest = sorted(self.thinking, key=lambda t: -len(t.start))
        return next((t for t in longest if end.endswith(t.start.rstrip())), None)


@dataclass(frozen=True, slots=True)
class Family:
    """A dialect and the signs by which a chat template shows that its model was trained on it: any
    of the groups, with all that is in it."""

    dialect: Dialect
    signs: tuple[tuple[str, ...], ...]


Schema = Mapping[str, object]
