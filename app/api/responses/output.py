"""An answer's events as output items, with the stream events that tell of each change."""

from collections.abc import Iterator, Sequence

from app.api.parts import JSON
from app.api.responses.kinds import (
    CallItem,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
)
from app.api.responses.sealed import Seal
from app.api.responses.tools import Toolbox
from models.chat import (
    Event,
    Finished,
    FinishReason,
    Logprobs,
    Reasoning,
    Text,
    TokenLogprob,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)


class Output:
    """The items of one response while they come. A text or a thought ends where another item
    begins; calls may run side by side."""

    def __init__(self, toolbox: Toolbox, seal: Seal | None, *, with_logprobs: bool) -> None:
        self._toolbox, self._seal, self._with_logprobs = toolbox, seal, with_logprobs
        self._items: list[OutputItem] = []
        self._words: MessageItem | ReasoningItem | None = None
        self._calls: dict[int, CallItem] = {}
        self._logprobs: list[TokenLogprob] = []

    def items(self) -> list[JSON]:
        """All items, as they stand."""
        return [item.shown() for item in self._items]

    def take(self, event: Event) -> Iterator[JSON]:
        """What a client is told of an event."""
        match event:
            case Text(text) if text:
                yield from self._text(text)
            case Reasoning(text) if text:
                yield from self._reasoning(text)
            case Logprobs(tokens) if self._with_logprobs:
                self._logprobs.extend(tokens)
            case ToolCallStart(index, id, name):
                yield from self._call(index, id, name)
            case ToolCallDelta(index, arguments) if index in self._calls:
                yield from self._calls[index].push(arguments)
            case ToolCallEnd(index) if index in self._calls:
                yield from self._calls.pop(index).end(complete=True)
            case Finished(reason):
                yield from self._finish(cut_short=reason is FinishReason.LENGTH)
            case _:
                pass

    def _text(self, text: str) -> Iterator[JSON]:
        if not isinstance(self._words, MessageItem):
            yield from self._settle()
            yield from self._begin(MessageItem(len(self._items)))
        assert isinstance(self._words, MessageItem)
        yield from self._words.push(text, self._taken_logprobs())

    def _reasoning(self, text: str) -> Iterator[JSON]:
        self._logprobs.clear()  # those of tokens that are no text of a message
        if not isinstance(self._words, ReasoningItem):
            yield from self._settle()
            yield from self._begin(ReasoningItem(len(self._items), self._seal))
        assert isinstance(self._words, ReasoningItem)
        yield from self._words.push(text)

    def _call(self, index: int, id: str, name: str) -> Iterator[JSON]:
        self._logprobs.clear()
        yield from self._end_words(complete=True)
        tool = self._toolbox.offered(name)
        kind = CustomCallItem if tool.custom else FunctionCallItem
        self._calls[index] = item = kind(len(self._items), id, tool)
        self._items.append(item)
        yield from item.begin()

    def _begin(self, item: MessageItem | ReasoningItem) -> Iterator[JSON]:
        self._words = item
        self._items.append(item)
        yield from item.begin()

    def _settle(self, *, cut_short: bool = False) -> Iterator[JSON]:
        """End what is open: a call that text follows, or the answer's end, may have broken off."""
        yield from self._end_words(complete=not cut_short)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            yield from call.end(complete=call.is_whole and not cut_short)

    def _end_words(self, *, complete: bool) -> Iterator[JSON]:
        words, self._words = self._words, None
        if words is not None:
            yield from words.end(complete=complete)

    def _finish(self, *, cut_short: bool) -> Iterator[JSON]:
        yield from self._settle(cut_short=cut_short)
        if not cut_short and all(isinstance(item, ReasoningItem) for item in self._items):
            # An answer of nothing is still an answer: clients look for a message or a call.
            yield from self._begin(MessageItem(len(self._items)))
            yield from self._end_words(complete=True)

    def _taken_logprobs(self) -> Sequence[TokenLogprob]:
        taken, self._logprobs = self._logprobs, []
        return taken
