"""From a request to what a loaded model is given, and to how its answer is read."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from models.canonical import canonical
from models.chat import Conversation, RawPrompt, Request
from models.confined import ConfinedTemplate
from models.dialects.choose import dialect_for
from models.dialects.hermes import HERMES
from models.dialects.stream import Parser
from models.errors import ContextOverflow, RequestInvalid
from models.templates import fallback_source
from runtimes.guiding import Guiding
from runtimes.messages import Guide, Vocab

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
    guide: Guide | None


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
        dialect = dialect_for(template_source, list(marks))
        thinking = tuple(t for t in dialect.thinking if t.start in source)
        if not self._template.traits.tools:  # they are told in the way of this family then
            dialect = replace(HERMES, thinking=dialect.thinking, ends=dialect.ends)
        if thinking:  # the marks that this model knows come first
            others = tuple(t for t in dialect.thinking if t not in thinking)
            dialect = replace(dialect, thinking=thinking + others)
        self._guiding = Guiding(dialect, marks, thinks=bool(thinking))
        self._vocab, self._encode, self._context = vocab, encode, context
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
            tokens = await self._raw(request.prompt)
            guide = Guide(request.constraint) if request.constraint is not None else None
            return Prompt(tokens, self._boundaries(tokens), None, guide)
        conversation = self._cleaned(request.prompt)
        text = await self._template.rendered(conversation)
        tokens = await self._tokens(text)
        parser, guide = self._guiding.reading(request, conversation.tools, text[-_END:])
        return Prompt(tokens, self._boundaries(tokens), parser, guide)

    async def _raw(self, prompt: RawPrompt) -> tuple[int, ...]:
        content = prompt.content
        if prompt.suffix is None:
            return content if isinstance(content, tuple) else await self._tokens(content)
        marks = self._vocab.fill
        if marks is None:
            text = (
                "suffix: this model cannot fill in text, its vocabulary has no marks for it. Leave "
                "suffix out, or take a model that was trained for it."
            )
            raise RequestInvalid(text, "suffix")
        before = content if isinstance(content, tuple) else await self._encode(content, False)
        after = await self._encode(prompt.suffix, False)
        first = (self._vocab.bos_id,) if self._vocab.adds_bos else ()
        return (*first, marks[0], *before, marks[1], *after, marks[2])

    def _cleaned(self, conversation: Conversation) -> Conversation:
        if not self._canonical:
            return conversation
        made = canonical(conversation)
        for change in set(made.changes) - self._told:
            self._told.add(change)
            logger.info("%s, so that the cache can be reused (said once)", change)
        return made.conversation

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
