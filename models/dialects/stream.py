"""The one machine that reads a model's text by its dialect: text, reasoning and tool calls.

It shows text as it comes and holds back only an ending that may still become markup, together with
the white space before it: white space beside markup belongs to the markup. What the dialect does
not make markup is text, to the letter. So is a section of calls in which there is no call.
"""

from collections.abc import Callable, Sequence

from models.chat import Event, Tool
from models.dialects.base import Dialect, Ids, Thinking
from models.dialects.calls import CallReader
from models.dialects.channels import ChannelReader
from models.dialects.desk import Desk
from models.dialects.emitter import Emitter
from models.dialects.ids import CallIds, random_id
from models.dialects.offered import Offered
from models.dialects.reader import Marks, Reader, Waiting
from models.dialects.showing import show_until


class Parser:
    """One answer. Gives the same events, but for where they are cut, in whatever pieces the text
    comes.

    `prompt_end` is the end of the rendered prompt: it may have opened the reasoning already.
    Without `tools` their markup is plain text; that of reasoning and of a turn's end never is.
    """

    def __init__(
        self,
        dialect: Dialect,
        tools: Sequence[Tool] = (),
        *,
        prompt_end: str = "",
        new_id: Callable[[Ids], str] = random_id,
    ) -> None:
        self._text, self._events = Reader(), Emitter()
        desk = Desk(self._text, self._events, CallIds(dialect.ids, new_id), Offered(tools))
        if dialect.channels is not None:
            self._machine = ChannelReader(desk, dialect.channels, dialect.ends)
            self._run = self._machine.run(prompt_end)
        else:
            self._machine = _Machine(desk, dialect, bool(tools))
            self._run = self._machine.run(prompt_end)
        self._go()

    @property
    def thinking(self) -> bool:
        """Whether the text so far ends within reasoning. After the answer's last token: it was
        never closed, and what came may be all the answer there is."""
        return self._machine.thinking

    def push(self, text: str) -> list[Event]:
        """More of the model's text; returns what it has made certain."""
        self._text.push(text)
        self._go()
        return self._events.take()

    def finish(self) -> list[Event]:
        """Nothing follows: what was held back is what it looks like."""
        self._text.ended = True
        self._go()
        return self._events.take()

    def _go(self) -> None:
        next(self._run, None)


class _Machine:
    """The states of an answer with marks: what it says, and what it thinks."""

    def __init__(self, desk: Desk, dialect: Dialect, with_tools: bool) -> None:
        self._text, self._events = desk.reader, desk.emitter
        self._calls = CallReader(desk)
        self._sections = dialect.sections if with_tools else ()
        self._opening = {mark: s for s in self._sections for mark in s.open}
        self._bare = [s for s in self._sections if not s.open]
        self._thinking = {t.start: t for t in dialect.thinking}
        self._closing = {t.end: t for t in dialect.thinking}
        self._ends = frozenset(dialect.ends)
        self._dialect = dialect
        self._marks = Marks([*self._opening, *self._thinking, *self._closing, *self._ends])
        self._fresh = True
        """Nothing was said yet, or since the last markup."""
        self._begins = True
        """What follows is the first of it, where calls without a mark may be."""
        self._beside = False
        """The last thing was reasoning or a call, whose markup has the white space that follows."""
        self.thinking = False

    def run(self, prompt_end: str) -> Waiting[None]:
        """Read the answer to its end."""
        if (opened := self._dialect.opened_by(prompt_end)) is not None:
            yield from self._think(opened)
        while True:
            if self._begins and self._bare:
                yield from self._try_bare()
            mark, space = yield from show_until(self._text, self._marks, self._say)
            if mark is None:
                if not self._beside:
                    self._say(space)
                return
            yield from self._marked(mark, space)

    # ------------------------------------------------------------------------------------- saying

    def _say(self, text: str) -> None:
        self._events.text(text)
        if text and not text.isspace():
            self._fresh = self._begins = self._beside = False

    def _marked(self, mark: str, space: str) -> Waiting[None]:
        """What a mark in the text begins, or that it is no mark here."""
        if (section := self._opening.get(mark)) is not None:
            if (yield from self._calls.section(section, known_only=False)):
                self._fresh = self._begins = self._beside = True
                return
        elif mark in self._ends:
            self._say(space)
            return
        elif (thinking := self._thinking.get(mark)) is not None:
            if self._fresh or thinking.special:
                yield from self._think(thinking)
                return
        elif self._fresh or self._closing[mark].special:
            yield from self._after_thinking()
            return
        self._say(space + mark)

    def _try_bare(self) -> Waiting[None]:
        """Calls without a mark, where the answer begins with them."""
        text, start = self._text, self._text.at
        yield from text.skip_space()
        for section in self._bare:
            if (yield from self._calls.section(section, known_only=True)):
                self._fresh = self._begins = self._beside = True
                return
        text.at = start
        self._begins = False

    # ----------------------------------------------------------------------------------- thinking

    def _think(self, thinking: Thinking) -> Waiting[None]:
        """Reasoning, up to its closing mark or to a call: models forget to close it."""
        self.thinking = True
        yield from self._text.skip_space()
        marks = Marks([thinking.end, *self._opening, *self._ends])
        while True:
            mark, space = yield from show_until(self._text, marks, self._events.reasoning)
            if mark is None:
                self._events.reasoning(space)
                return
            if mark == thinking.end:
                break
            section = self._opening.get(mark)
            if section is not None:
                if (yield from self._calls.section(section, known_only=True)):
                    break
                self._events.reasoning(space + mark)
            else:
                self._events.reasoning(space)
        self.thinking = False
        yield from self._after_thinking()

    def _after_thinking(self) -> Waiting[None]:
        yield from self._text.skip_space()
        self._fresh = self._begins = self._beside = True
