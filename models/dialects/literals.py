"""Arguments written otherwise than as JSON: Python's literals, and braces with bare keys."""

import math
import re
from dataclasses import dataclass
from typing import cast

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_NAMED = re.compile(r"([^\W\d][\w\-]*)\s*=(?!=)")
_ATOM_END = re.compile(r"[,}\])]|\Z")
_WORDS: dict[str, object] = {
    **{"true": True, "false": False, "null": None},
    **{"True": True, "False": False, "None": None},
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_CODED = {"x": 2, "u": 4, "U": 8}
_DEEPEST = 100


@dataclass(frozen=True, slots=True)
class Style:
    """How literals are written. In `verbatim` quotes a backslash is a backslash. `bare`: a value
    without quotes that is no literal is a string, up to a comma or bracket."""

    quotes: tuple[str, ...]
    verbatim: tuple[str, ...] = ()
    bare: bool = False

    @property
    def all_quotes(self) -> tuple[str, ...]:
        return (*self.verbatim, *self.quotes)


PYTHON = Style(quotes=('"', "'"))


def braces(verbatim: tuple[str, ...]) -> Style:
    """Braces with bare keys, and strings between `verbatim` marks."""
    return Style(quotes=('"',), verbatim=verbatim, bare=True)


def overlap(text: str, mark: str) -> int:
    """The length of the longest ending of `text` that is a proper beginning of `mark`."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)


class Balance:
    """Finds where the bracket that text opens with is closed, through pieces of text."""

    def __init__(self, style: Style) -> None:
        self._verbatim = style.verbatim
        self._depth = 0
        self._quote = ""
        quotes = "|".join(map(re.escape, style.all_quotes))
        self._outside = re.compile(rf"{quotes}|[(\[{{}}\])]")
        self._inside = {
            quote: re.compile(re.escape(quote))
            if quote in style.verbatim
            else re.compile(rf"\\.|{quote}|\\\Z", re.DOTALL)
            for quote in style.all_quotes
        }

    def scan(self, text: str, at: int, *, ended: bool) -> tuple[int, bool]:
        """Go on at `at`; returns where it stopped, and whether that is right after the bracket."""
        # A mark that has only begun is not looked at yet.
        limit = len(text) - (
            0 if ended else max((overlap(text, q) for q in self._verbatim), default=0)
        )
        while at < limit:
            pattern = self._inside[self._quote] if self._quote else self._outside
            found = pattern.search(text, at, limit)
            if found is None or found[0] == "\\":
                return (found.start() if found else limit), False
            at = found.end()
            if self._step(found[0]):
                return at, True
        return at, False

    def _step(self, mark: str) -> bool:
        if mark[0] == "\\":
            return False
        if self._quote:
            self._quote = ""
        elif mark in _CLOSING:
            self._depth += 1
        elif mark in _CLOSING.values():
            self._depth -= 1
            return self._depth == 0
        else:
            self._quote = mark
        return False


def keywords(text: str, positions: list[str]) -> dict[str, object] | None:
    """The arguments of `(a=1, b="x")`, or None where they are no literals. Those without a name get
    the names in `positions`, in order."""
    reader = _Literals(text, PYTHON)
    try:
        return reader.keywords(positions)
    except (_NotLiteral, RecursionError):
        return None


def literal(text: str) -> object:
    """The value of a Python literal; None where it is none."""
    try:
        return _Literals(text, PYTHON).whole()
    except (_NotLiteral, RecursionError):
        return None


def mapping(text: str, style: Style) -> dict[str, object] | None:
    """The arguments of `{key:value}`, or None where they are no literals."""
    reader = _Literals(text, style)
    try:
        value = reader.whole()
    except (_NotLiteral, RecursionError):
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


class _NotLiteral(Exception):
    """The text is something else."""


class _Literals:
    def __init__(self, text: str, style: Style) -> None:
        self._text, self._at, self._style, self._depth = text, 0, style, 0

    def keywords(self, positions: list[str]) -> dict[str, object]:
        found: dict[str, object] = {}
        self._expect("(")
        while not self._skip(")"):
            name = _NAMED.match(self._text, self._at)
            if name:
                self._at = name.end()
                found[name[1]] = self.value()
            elif len(found) < len(positions):
                found[positions[len(found)]] = self.value()
            else:
                raise _NotLiteral
            if not self._skip(",") and not self._ahead(")"):
                raise _NotLiteral
        self._nothing_more()
        return found

    def whole(self) -> object:
        value = self.value()
        self._nothing_more()
        return value

    def value(self) -> object:
        self._space()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NotLiteral
        try:
            if quote := self._quote():
                return self._strings(quote)
            if self._skip("{"):
                return self._members()
            for opening in "[(":
                if self._skip(opening):
                    return self._items(_CLOSING[opening])
            return self._atom()
        finally:
            self._depth -= 1

    def _members(self) -> dict[str, object]:
        found: dict[str, object] = {}
        while not self._skip("}"):
            key = self._key()
            self._expect(":")
            found[key] = self.value()
            if not self._skip(",") and not self._ahead("}"):
                raise _NotLiteral
        return found

    def _key(self) -> str:
        self._space()
        if quote := self._quote():
            return self._strings(quote)
        end = self._text.find(":", self._at)
        if not self._style.bare or end < 0:
            raise _NotLiteral
        key, self._at = self._text[self._at : end].strip(), end
        return key

    def _items(self, closing: str) -> list[object]:
        found: list[object] = []
        while not self._skip(closing):
            found.append(self.value())
            if not self._skip(",") and not self._ahead(closing):
                raise _NotLiteral
        return found

    def _atom(self) -> object:
        end = _ATOM_END.search(self._text, self._at)
        assert end is not None
        word, self._at = self._text[self._at : end.start()].strip(), end.start()
        if word in _WORDS:
            return _WORDS[word]
        if _NUMBER.fullmatch(word):
            return _number(word)
        if self._style.bare:
            return word
        raise _NotLiteral

    def _quote(self) -> str:
        quotes = self._style.all_quotes
        return next((q for q in quotes if self._text.startswith(q, self._at)), "")

    def _strings(self, quote: str) -> str:
        """A string, and those that follow it directly, as Python joins them."""
        out: list[str] = []
        while quote:
            self._at += len(quote)
            out.append(self._string(quote))
            if self._style.bare:
                break
            self._space()
            quote = self._quote()
        return "".join(out)

    def _string(self, quote: str) -> str:
        if quote in self._style.verbatim:
            end = self._text.find(quote, self._at)
            if end < 0:
                raise _NotLiteral
            text, self._at = self._text[self._at : end], end + len(quote)
            return text
        out: list[str] = []
        plain = re.compile(rf"[^\\{quote}]*")
        while True:
            run = plain.match(self._text, self._at)
            assert run is not None
            out.append(run[0])
            self._at = run.end() + 1
            if run.end() >= len(self._text):
                raise _NotLiteral
            if self._text[run.end()] == quote:
                return "".join(out)
            out.append(self._escape())

    def _escape(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char in "\\'\"/" and char:
            return char
        digits = self._text[self._at : self._at + _CODED.get(char, 0)]
        if char in _CODED and re.fullmatch(rf"[0-9a-fA-F]{{{_CODED[char]}}}", digits):
            self._at += len(digits)
            code = int(digits, 16)
            return chr(code) if code < 0x110000 else "\ufffd"
        return _ESCAPES.get(char, "\\" + char)

    # ------------------------------------------------------------------------------ small steps

    def _space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _ahead(self, mark: str) -> bool:
        self._space()
        return self._text.startswith(mark, self._at)

    def _skip(self, mark: str) -> bool:
        if not self._ahead(mark):
            return False
        self._at += len(mark)
        return True

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            raise _NotLiteral

    def _nothing_more(self) -> None:
        self._space()
        if self._at < len(self._text):
            raise _NotLiteral


def _number(word: str) -> int | float:
    try:
        return int(word)
    except ValueError:
        number = float(word)
    if math.isinf(number):
        raise _NotLiteral
    return number
