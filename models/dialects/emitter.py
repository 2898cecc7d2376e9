"""The events that a parser has found and not yet handed out."""

from models.chat import Event, Reasoning, Text, ToolCallDelta, ToolCallEnd, ToolCallStart


class Emitter:
    """Collects events; neighbours of one kind become one."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._calls = 0

    def take(self) -> list[Event]:
        """What came since the last time."""
        events, self._events = self._events, []
        return events

    def text(self, text: str) -> None:
        if not text:
            return
        if self._events and isinstance(last := self._events[-1], Text):
            self._events[-1] = Text(last.text + text)
        else:
            self._events.append(Text(text))

    def reasoning(self, text: str) -> None:
        if not text:
            return
        if self._events and isinstance(last := self._events[-1], Reasoning):
            self._events[-1] = Reasoning(last.text + text)
        else:
            self._events.append(Reasoning(text))

    def start(self, call_id: str, name: str) -> int:
        """A call begins; returns its index."""
        index, self._calls = self._calls, self._calls + 1
        self._events.append(ToolCallStart(index, call_id, name))
        return index

    def arguments(self, index: int, piece: str) -> None:
        if not piece:
            return
        last = self._events[-1] if self._events else None
        if isinstance(last, ToolCallDelta) and last.index == index:
            self._events[-1] = ToolCallDelta(index, last.arguments + piece)
        else:
            self._events.append(ToolCallDelta(index, piece))

    def end(self, index: int) -> None:
        self._events.append(ToolCallEnd(index))

    def whole(self, call_id: str, name: str, arguments: str) -> None:
        """A call that is known in full."""
        index = self.start(call_id, name)
        self.arguments(index, arguments)
        self.end(index)
