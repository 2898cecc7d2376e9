"""Token bytes to text, as they come: whole characters only, and never a part of a stop string."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from models.chat import TokenLogprob


class StopStrings:
    """Cuts a text before the first stop string, holding back exactly the longest ending that could
    still become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(s for s in stops if s)
        self._held = ""
        self.hit = False

    def push(self, text: str) -> str:
        """The part of all text so far that may be shown and has not been. After a hit, nothing."""
        if self.hit:
            return ""
        self._held += text
        # The first to be complete wins, whatever pieces the text comes in.
        found = [(at + len(s), at) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            self.hit = True
            shown, self._held = self._held[: min(found)[1]], ""
            return shown
        keep = max((_overlap(self._held, s) for s in self._stops), default=0)
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def flush(self) -> str:
        """What was held back, now that nothing follows."""
        shown, self._held = self._held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """The length of the longest ending of `text` that is a proper beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


@dataclass(slots=True)
class Piece:
    """Text to show, and the logprobs of the tokens behind it."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(slots=True)
class TextAssembler:
    """One answer's text. `push` takes a token's bytes; text is held back while a character is
    incomplete or a stop string may have begun, and its tokens' logprobs with it."""

    stops: StopStrings
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    _waiting: list[TokenLogprob] = field(default_factory=list[TokenLogprob])

    @property
    def stopped(self) -> bool:
        return self.stops.hit

    def push(self, data: bytes, logprob: TokenLogprob | None = None) -> Piece:
        """Take a token; returns what may be shown now."""
        if logprob is not None:
            self._waiting.append(logprob)
        return self._release(self.stops.push(self._decoder.decode(data)))

    def finish(self) -> Piece:
        """The rest, at the answer's end."""
        rest = "" if self.stopped else self.stops.push(self._decoder.decode(b"", final=True))
        return self._release(rest + self.stops.flush(), at_end=True)

    def _release(self, text: str, *, at_end: bool = False) -> Piece:
        if not text and not at_end:
            return Piece("")
        released, self._waiting = tuple(self._waiting), []
        return Piece(text, released)
