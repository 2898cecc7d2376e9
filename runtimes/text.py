"""Token bytes to events, as they come: whole characters only, and never a part of a stop string."""

import codecs
from collections.abc import Sequence

from models.chat import Event, Logprobs, Reasoning, Text, TokenLogprob, ToolCallStart
from models.dialects.stream import Parser


class StopStrings:
    """Cuts a text before the first stop string, holding back exactly the longest ending that could
    still become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(s for s in stops if s)
        self._held = ""
        self.hit: str | None = None
        """The one that was found."""

    def push(self, text: str) -> str:
        """The part of all text so far that may be shown and has not been. After a hit, nothing."""
        if self.hit is not None:
            return ""
        self._held += text
        # The first to be complete wins, whatever pieces the text comes in.
        found = [(at + len(s), at, s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            _, at, self.hit = min(found)
            shown, self._held = self._held[:at], ""
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


class AnswerReader:
    """One answer: token bytes in, events out. Bytes become whole characters, the model's dialect
    tells text, reasoning and calls apart (`parser`; None where the prompt was raw), and the text is
    cut at a stop string. Reasoning and calls are not: a stop string is about what is shown.

    Logprobs come before the events of their tokens, and wait while these hold anything back."""

    def __init__(self, stops: Sequence[str], parser: Parser | None = None) -> None:
        self.reasoning_tokens = 0
        self.called = False
        """Whether a tool was called."""
        self._stops, self._parser = StopStrings(stops), parser
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting: list[TokenLogprob] = []
        self._thought: list[str] = []
        self._said = False

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.hit

    def push(self, data: bytes, logprob: TokenLogprob | None = None) -> list[Event]:
        """Take a token; returns what it has made certain."""
        if logprob is not None:
            self._waiting.append(logprob)
        events = self._read(self._decoder.decode(data))
        if self._parser is not None and self._parser.thinking:
            self.reasoning_tokens += 1
        return self._with_logprobs(self._cut(events))

    def finish(self, *, cut_short: bool = False) -> list[Event]:
        """The rest, at the answer's end; `cut_short` by a limit and not by the model. Reasoning
        that a model ends its turn in without having said a word was its answer."""
        events: list[Event] = []
        if not self.stopped:
            events = self._cut(self._read(self._decoder.decode(b"", final=True)))
            if self._parser is not None:
                events += self._cut(self._parser.finish())
                if self._parser.thinking and not (cut_short or self._said or self.called):
                    events.append(Text("".join(self._thought)))
        if rest := self._stops.flush():
            events.append(Text(rest))
        return self._with_logprobs(events, at_end=True)

    def _read(self, text: str) -> list[Event]:
        if self._parser is None:
            return [Text(text)] if text else []
        return self._parser.push(text)

    def _cut(self, events: Sequence[Event]) -> list[Event]:
        """The same with text held back that may begin a stop string, and nothing after one."""
        shown: list[Event] = []
        for event in events:
            if self.stopped:
                break
            match event:
                case Text(text):
                    if text := self._stops.push(text):
                        shown.append(Text(text))
                        self._said = self._said or not text.isspace()
                    continue
                case Reasoning(text):
                    self._thought.append(text)
                case ToolCallStart():
                    self.called = True
                case _:
                    pass
            if rest := self._stops.flush():
                shown.append(Text(rest))
            shown.append(event)
        return shown

    def _with_logprobs(self, events: list[Event], *, at_end: bool = False) -> list[Event]:
        if not self._waiting or not (events or at_end):
            return events
        released, self._waiting = tuple(self._waiting), []
        return [Logprobs(released), *events]
