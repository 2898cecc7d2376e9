"""JSON as it comes: where a value ends, and that it is well-formed so far."""

import re

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_SPACE = re.compile(r"[ \t\n\r]+")
_ATOM = re.compile(r"[-+.0-9A-Za-z]+")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_HEX = frozenset("0123456789abcdefABCDEF")
# Python's words are what models write that have seen more Python than JSON.
_WORDS = {w: w for w in ("true", "false", "null")} | {
    "True": "true",
    "False": "false",
    "None": "null",
}
_ESCAPED = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


class JsonScanner:
    """Follows one JSON value through pieces of text.

    What it has passed is in `take()`, well-formed so far, and the value itself when `done`. Raw
    control characters in strings, which JSON forbids and models write, come out as escapes.
    `broken`: this is no JSON.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._out: list[str] = []
        self._open: list[str] = []
        self._next = self._value
        self._atom = ""
        self._in_key = False
        self._hex_left = 0

    def scan(self, text: str, at: int) -> int:
        """Go on at `at`, as far as the value goes; returns where it stopped."""
        while at < len(text) and not (self.done or self.broken):
            at = self._next(text, at)
        return at

    def take(self) -> str:
        """What was passed since the last time."""
        out, self._out = "".join(self._out), []
        return out

    def finish(self, at: int) -> int:
        """Nothing follows after `at`: a number that had no end yet ends here. Returns where it
        stopped."""
        length = len(self._atom)
        if length and not (self.done or self.broken):
            self._end_atom()
        return at - length if length and self.broken else at

    # ------------------------------------------------- one method a state; each moves on or stops

    def _value(self, text: str, at: int) -> int:
        if space := _SPACE.match(text, at):
            return self._pass(space)
        char = text[at]
        if char == '"':
            return self._quote(at, key=False)
        if char in "{[":
            self._open.append(char)
            self._out.append(char)
            self._next = self._first_key if char == "{" else self._first_item
            return at + 1
        if _ATOM.match(char):
            self._next = self._in_atom
            return at
        return self._break(at)

    def _first_key(self, text: str, at: int) -> int:
        return self._close(at) if text[at] == "}" else self._key(text, at)

    def _key(self, text: str, at: int) -> int:
        if space := _SPACE.match(text, at):
            return self._pass(space)
        return self._quote(at, key=True) if text[at] == '"' else self._break(at)

    def _first_item(self, text: str, at: int) -> int:
        return self._close(at) if text[at] == "]" else self._value(text, at)

    def _colon(self, text: str, at: int) -> int:
        if space := _SPACE.match(text, at):
            return self._pass(space)
        if text[at] != ":":
            return self._break(at)
        self._out.append(":")
        self._next = self._value
        return at + 1

    def _after(self, text: str, at: int) -> int:
        """After a member or an item."""
        if space := _SPACE.match(text, at):
            return self._pass(space)
        inside = self._open[-1]
        if text[at] == ",":
            self._out.append(",")
            self._next = self._key if inside == "{" else self._value
            return at + 1
        return self._close(at) if text[at] == {"{": "}", "[": "]"}[inside] else self._break(at)

    def _in_string(self, text: str, at: int) -> int:
        if plain := _PLAIN.match(text, at):
            return self._pass(plain)
        char = text[at]
        if char == '"':
            self._out.append(char)
            if self._in_key:
                self._next = self._colon
            else:
                self._value_ended()
        elif char == "\\":
            self._next = self._escape  # shown with what it escapes, or not at all
        else:
            self._out.append(_ESCAPED.get(char, f"\\u{ord(char):04x}"))
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        char = text[at]
        self._next = self._in_string
        if char == "u":
            self._next, self._hex_left = self._hex, 4
        elif char == "'":  # Python's escape of what needs none here
            self._out.append(char)
            return at + 1
        elif char not in '"\\/bfnrt':  # a lone backslash, as in patterns and paths
            self._out.append("\\\\")
            return at
        self._out.append("\\" + char)
        return at + 1

    def _hex(self, text: str, at: int) -> int:
        if text[at] not in _HEX:
            return self._break(at)
        self._out.append(text[at])
        self._hex_left -= 1
        if not self._hex_left:
            self._next = self._in_string
        return at + 1

    def _in_atom(self, text: str, at: int) -> int:
        if run := _ATOM.match(text, at):
            self._atom += run[0]
            return run.end()
        length = len(self._atom)
        self._end_atom()
        return at - length if self.broken else at

    # ------------------------------------------------------------------------------------ the deeds

    def _pass(self, run: re.Match[str]) -> int:
        self._out.append(run[0])
        return run.end()

    def _quote(self, at: int, *, key: bool) -> int:
        self._out.append('"')
        self._in_key, self._next = key, self._in_string
        return at + 1

    def _close(self, at: int) -> int:
        self._out.append({"{": "}", "[": "]"}[self._open.pop()])
        self._value_ended()
        return at + 1

    def _end_atom(self) -> None:
        atom, self._atom = self._atom, ""
        word = _WORDS.get(atom) or (atom if _NUMBER.fullmatch(atom) else None)
        if word is None:
            self.broken = True
            return
        self._out.append(word)
        self._value_ended()

    def _value_ended(self) -> None:
        if self._open:
            self._next = self._after
        else:
            self.done = True

    def _break(self, at: int) -> int:
        self.broken = True
        return at
