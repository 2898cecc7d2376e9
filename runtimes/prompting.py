"""From a request to what a loaded model is given, and to how its answer is read."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from models.canonical import canonical
from models.chat import (
    Constraint,
    ConstraintKind,
    Conversation,
    Request,
    Tool,
    ToolChoice,
    ToolMode,
)
from models.confined import ConfinedTemplate
from models.dialects.base import Dialect
from models.dialects.choose import dialect_for
from models.dialects.generic import GENERIC
from models.dialects.grammar import call_grammar
from models.dialects.hermes import HERMES
from models.dialects.stream import Parser
from models.errors import ContextOverflow
from models.templates import fallback_source
from runtimes.messages import Vocab

Encode = Callable[[str, bool], Awaitable[tuple[int, ...]]]
"""Text to token ids, with the token that starts every text or without."""

logger = logging.getLogger("runner.prompts")

# Of a prompt's end so much tells whether the template has opened the reasoning.
_END = 200


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as the model gets it. `parser` reads the answer, None takes it as it is; at the
    positions `boundaries` messages begin."""

    tokens: tuple[int, ...]
    boundaries: tuple[int, ...]
    parser: Parser | None
    constraint: Constraint | None


class Prompter:
    """Writes the prompts of one model. Raises TemplateFailed at construction where the model's
    template does not even parse."""

    def __init__(
        self,
        vocab: Vocab,
        template_source: str,
        encode: Encode,
        context: int,
        *,
        canonical_prompts: bool = True,
    ) -> None:
        marks = {vocab.pieces[i].decode("utf-8", "replace"): i for i in sorted(vocab.control_ids)}
        source = template_source or fallback_source(list(marks))
        self._template = ConfinedTemplate(source, vocab.bos_text, vocab.eos_text)
        self._dialect = dialect_for(template_source, list(marks))
        self._thinks = any(t.start in source for t in self._dialect.thinking)
        if not self._template.traits.tools:  # they are told in the way of this family then
            self._dialect = replace(
                HERMES, thinking=self._dialect.thinking, ends=self._dialect.ends
            )
        self._vocab, self._marks, self._encode, self._context = vocab, marks, encode, context
        self._canonical = canonical_prompts
        self._longest_piece = max(1, *map(len, vocab.pieces))
        self._told: set[str] = set()

    @property
    def template_source(self) -> str:
        return self._template.source

    def close(self) -> None:
        """End the template's process."""
        self._template.close()

    async def prompt(self, request: Request) -> Prompt:
        """Raises ContextOverflow or TemplateFailed."""
        if not isinstance(request.prompt, Conversation):
            content = request.prompt.content
            tokens = content if isinstance(content, tuple) else await self._tokens(content)
            return Prompt(tokens, self._boundaries(tokens), None, request.constraint)
        conversation = self._cleaned(request.prompt)
        text = await self._template.rendered(conversation)
        tokens = await self._tokens(text)
        parser, constraint = self._reading(request, conversation.tools, text[-_END:])
        return Prompt(tokens, self._boundaries(tokens), parser, constraint)

    def _cleaned(self, conversation: Conversation) -> Conversation:
        if not self._canonical:
            return conversation
        made = canonical(conversation)
        for change in set(made.changes) - self._told:
            self._told.add(change)
            logger.info("%s, so that the cache can be reused (said once)", change)
        return made.conversation

    def _reading(
        self, request: Request, tools: Sequence[Tool], end: str
    ) -> tuple[Parser | None, Constraint | None]:
        """How the answer is read, and what it is held to."""
        if request.constraint is not None:
            return None, request.constraint  # all of it has the wanted shape
        choice = request.tool_choice
        if choice.mode is ToolMode.REQUIRED and tools:
            dialect, constraint = self._forced(choice, tools, end)
            return Parser(dialect, tools, prompt_end=end), constraint
        offered = tools if choice.mode is ToolMode.AUTO else ()
        return Parser(self._dialect, offered, prompt_end=end), None

    def _forced(
        self, choice: ToolChoice, tools: Sequence[Tool], end: str
    ) -> tuple[Dialect, Constraint]:
        """A grammar of calls and nothing else, in the model's own dialect where that can be
        written as one."""
        for dialect in (self._dialect, GENERIC):
            source = call_grammar(
                dialect,
                tools,
                required=True,
                # a tool that is named is called once
                parallel=choice.parallel and choice.name is None,
                named=choice.name,
                opened=dialect.opened_by(end),
                may_think=self._thinks,
                special=self._marks,
            )
            if source is not None:
                return dialect, Constraint(ConstraintKind.CALLS, source)
        raise AssertionError("the generic dialect can always be written as a grammar")

    async def _tokens(self, text: str) -> tuple[int, ...]:
        """Raises ContextOverflow early where the text is far too long."""
        vocab = self._vocab
        fewest = len(text.encode("utf-8", "replace")) // self._longest_piece
        if fewest > self._context:  # tokenizing megabytes would keep others waiting
            raise ContextOverflow(fewest, self._context, at_least=True)
        double = vocab.bos_text != "" and text.startswith(vocab.bos_text)
        tokens = await self._encode(text, vocab.adds_bos and not double)
        # An empty text still has to start somewhere.
        return tokens or (vocab.bos_id if vocab.bos_id >= 0 else max(vocab.eos_id, 0),)

    def _boundaries(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Where messages begin: at markup that follows text."""
        control = self._vocab.control_ids
        return tuple(
            i
            for i in range(1, len(tokens))
            if tokens[i] in control and tokens[i - 1] not in control
        )
