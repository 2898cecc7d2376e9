"""What the answers of one model are held to, and how they are read."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from models.chat import Constraint, ConstraintKind, Request, Tool, ToolChoice, ToolMode
from models.dialects.base import Dialect
from models.dialects.generic import GENERIC
from models.dialects.grammar import Calls, answer_grammar, call_grammar, call_triggers
from models.dialects.spelling import Special, spelled
from models.dialects.stream import Parser
from runtimes.constraints import as_lark
from runtimes.messages import Guide, Thought


class Guiding:
    """For a model that writes in `dialect`. `thinks`: its answers may begin with reasoning.
    `special`: the ids of its control tokens, by how they are written."""

    def __init__(self, dialect: Dialect, special: Special, *, thinks: bool) -> None:
        self._dialect, self._special, self._thinks = dialect, special, thinks

    def reading(
        self, request: Request, tools: Sequence[Tool], prompt_end: str
    ) -> tuple[Parser | None, Guide | None]:
        """For a request with these tools whose prompt ends so: the parser of its answer, None where
        all of it is text; and what it is held to, if anything."""
        choice = request.tool_choice
        offered = tuple(tools) if choice.mode is not ToolMode.NONE else ()
        if choice.mode is ToolMode.REQUIRED and offered:
            dialect, guide = self._forced(choice, offered, prompt_end)
            return Parser(dialect, offered, prompt_end=prompt_end), guide
        if request.constraint is not None:
            return self._shaped(request.constraint, Calls(offered, choice.parallel), prompt_end)
        parser = Parser(self._dialect, offered, prompt_end=prompt_end)
        return parser, self._watched(Calls(offered, choice.parallel), prompt_end)

    def _forced(
        self, choice: ToolChoice, tools: tuple[Tool, ...], prompt_end: str
    ) -> tuple[Dialect, Guide]:
        """Calls and nothing else, in the model's own dialect where that can be written as a
        grammar. A tool that is named is called once."""
        dialect = self._dialect
        if dialect.layout is None:
            dialect = replace(GENERIC, thinking=dialect.thinking)
        chosen = tuple(tool for tool in tools if choice.name in (None, tool.name))
        calls = Calls(chosen, choice.parallel and choice.name is None)
        guide = _guide(
            ConstraintKind.CALLS,
            lambda calls: answer_grammar(dialect, calls, None, self._special),
            calls,
        )
        assert guide is not None, "calls with a layout can be written as a grammar"
        return dialect, replace(guide, thought=self._thought(prompt_end))

    def _shaped(
        self, shape: Constraint, calls: Calls, prompt_end: str
    ) -> tuple[Parser | None, Guide]:
        """Text of a shape, or calls of the tools instead."""
        dialect, thought = self._dialect, self._thought(prompt_end)
        guide = None
        if calls.tools or dialect.channels is not None:
            body = as_lark(shape)
            guide = _guide(
                ConstraintKind.ANSWER,
                lambda calls: answer_grammar(dialect, calls, body, self._special),
                calls,
            )
        if guide is None:
            calls, guide = Calls(()), Guide(shape)
        guide = replace(guide, thought=thought)
        if dialect.channels is None:
            if thought is None and not calls.tools:
                return None, guide
            # The shape may hold text that looks like markup.
            early = tuple(replace(t, special=False) for t in dialect.thinking)
            dialect = replace(dialect, thinking=early, ends=())
        return Parser(dialect, calls.tools, prompt_end=prompt_end), guide

    def _watched(self, calls: Calls, prompt_end: str) -> Guide | None:
        """Anything, but where it comes to a call, that one in order."""
        dialect = self._dialect
        guide = _guide(
            ConstraintKind.CALLS,
            lambda calls: call_grammar(dialect, calls, self._special),
            calls,
        )
        if guide is None or dialect.layout is None:
            return None
        return replace(
            guide,
            thought=self._thought(prompt_end),
            triggers=call_triggers(dialect, calls, self._special),
            beginning=dialect.channels is None and not dialect.layout.begin,
        )

    def _thought(self, prompt_end: str) -> Thought | None:
        """The reasoning that an answer begins with, or may begin with."""
        if self._dialect.channels is not None:
            return None  # these have a grammar of their own
        opened = self._dialect.opened_by(prompt_end)
        own = next(iter(self._dialect.thinking), None) if self._thinks else None
        marks = opened or own
        if marks is None:
            return None
        start, end = (spelled(mark, self._special) for mark in (marks.start, marks.end))
        return Thought(start, end, opened is not None)


def _guide(
    kind: ConstraintKind, written: Callable[[Calls], str | None], calls: Calls
) -> Guide | None:
    """Schemas that cannot be enforced are no reason to refuse a request whose tools are not
    strict."""
    source = written(calls)
    if source is None:
        return None
    loose = written(replace(calls, loose=True))
    fallback = Constraint(kind, loose) if loose not in (None, source) else None
    return Guide(Constraint(kind, source), fallback)
