"""Text that comes in pieces, read as if all of it were there.

A reading is a generator that yields where it cannot go on without more text, so that what it finds
never depends on where the pieces were cut.
"""

import re
from collections.abc import Generator, Iterable, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Waiting: TypeAlias = Generator[None, None, T]

_SPACE = re.compile(r"\s*")


class Marks:
    """A set of marks to look for at once."""

    def __init__(self, marks: Iterable[str]) -> None:
        self.all = tuple(sorted({m for m in marks if m}, key=lambda m: (-len(m), m)))
        self._pattern = re.compile("|".join(map(re.escape, self.all)) or r"(?!)")
        self._begun = {mark[:n] for mark in self.all for n in range(1, len(mark))}
        self._longest = max(map(len, self._begun), default=0)

    def first(self, text: str, at: int) -> re.Match[str] | None:
        """The first mark at or after `at`; of those that begin there, the longest."""
        return self._pattern.search(text, at)

    def begun(self, text: str, at: int) -> int:
        """Where the ending of `text` begins that may still become a mark; its length if none."""
        for start in range(max(at, len(text) - self._longest), len(text)):
            if text[start:] in self._begun:
                return start
        return len(text)


class Reader:
    """The text so far, and how far it was read."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def push(self, text: str) -> None:
        """More text."""
        self.text += text

    def forget(self) -> None:
        """Drop what was read: nobody will go back."""
        self.text, self.at = self.text[self.at :], 0

    def peek(self) -> Waiting[str]:
        """The next character, or nothing at the end."""
        while self.at >= len(self.text) and not self.ended:
            yield
        return self.text[self.at : self.at + 1]

    def skip_space(self) -> Waiting[None]:
        """Go to the next character that is no white space."""
        while True:
            space = _SPACE.match(self.text, self.at)
            assert space is not None
            self.at = space.end()
            if self.at < len(self.text) or self.ended:
                return
            yield

    def match(self, marks: Sequence[str]) -> Waiting[str | None]:
        """Step over one of the marks if it stands here: the longest that does."""
        ordered = sorted(marks, key=len, reverse=True)
        while True:
            rest = self.text[self.at : self.at + len(ordered[0])] if ordered else ""
            undecided = False
            for mark in ordered:
                if rest.startswith(mark):
                    self.at += len(mark)
                    return mark
                if not self.ended and mark.startswith(rest):
                    undecided = True
                    break
            if not undecided:
                return None
            yield

    def ahead(self, marks: Sequence[str]) -> Waiting[bool]:
        """Whether one of the marks stands here."""
        start = self.at
        found = yield from self.match(marks)
        self.at = start
        return found is not None

    def run(self, pattern: re.Pattern[str], longest: int) -> Waiting[str]:
        """Step over all characters in a row that the pattern of one character matches, and return
        them; nothing where there are more than `longest`."""
        end = self.at
        while True:
            while end < len(self.text) and pattern.match(self.text[end]):
                end += 1
            if end - self.at > longest:
                return ""
            if end < len(self.text) or self.ended:
                found, self.at = self.text[self.at : end], end
                return found
            yield
