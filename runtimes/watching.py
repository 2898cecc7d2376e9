"""Constraints that do not hold from an answer's first token on: after the reasoning, or from a call
on."""

import logging
from collections.abc import Iterator
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from models.dialects.spelling import control, unspelled
from models.errors import RequestInvalid
from runtimes.constraints import ConstraintCompiler, TokenMask
from runtimes.messages import Guide, Thought
from runtimes.sampling import Mask, Row

logger = logging.getLogger("runner.constraints")


class Spelling:
    """Tokens as bytes in which control tokens stand out, and back."""

    def __init__(self, compiler: ConstraintCompiler) -> None:
        self.vocab, self._encode = compiler.vocab, compiler.encode
        self._beginnings: dict[bytes, NDArray[np.int64]] = {}

    def bytes_of(self, token: int) -> bytes:
        """See `models.dialects.spelling`."""
        if token in self.vocab.control_ids:
            return control(token)
        return self.vocab.pieces[token]

    def tokens(self, text: bytes) -> list[int]:
        """Tokens that spell the text."""
        return list(self._tokens(text))

    def _tokens(self, text: bytes) -> Iterator[int]:
        for piece in unspelled(text):
            if isinstance(piece, int):
                yield piece
            else:
                yield from self._encode(piece)

    def beginning(self, text: bytes) -> NDArray[np.int64]:
        """All tokens with which the text may begin."""
        if text not in self._beginnings:
            self._beginnings[text] = self._search(text)
        return self._beginnings[text]

    def _search(self, text: bytes) -> NDArray[np.int64]:
        first = next(unspelled(text), b"")
        if isinstance(first, int):
            return np.array([first], np.int64)
        ids = [i for i, piece in enumerate(self.vocab.pieces) if piece and first.startswith(piece)]
        return np.array([i for i in ids if i not in self.vocab.control_ids], np.int64)


class Stage(StrEnum):
    """Where an answer is."""

    BEGINNING = "beginning"
    THINKING = "thinking"
    ANSWERING = "answering"


class Reasoning:
    """Follows an answer until its reasoning is over."""

    def __init__(self, thought: Thought | None) -> None:
        self._thought = thought
        self._heard = b""
        self.stage = Stage.ANSWERING
        if thought is not None:
            self.stage = Stage.THINKING if thought.opened else Stage.BEGINNING

    def hear(self, text: bytes) -> bytes | None:
        """More of the answer. Returns what is no reasoning, once it is over; None until then."""
        if self._thought is None or self.stage is Stage.ANSWERING:
            return text
        self._heard += text
        if self.stage is Stage.BEGINNING:
            heard, start = self._heard.lstrip(), self._thought.start
            if heard.startswith(start):
                self.stage, self._heard = Stage.THINKING, heard[len(start) :]
            elif not start.startswith(heard):
                self.stage = Stage.ANSWERING
                return self._heard
        if self.stage is Stage.THINKING:
            before, mark, after = self._heard.partition(self._thought.end)
            if mark:
                self.stage = Stage.ANSWERING
                return after
            self._heard = before[-len(self._thought.end) :]
        return None

    @property
    def opening(self) -> bytes:
        """What is missing of the mark that would begin the reasoning."""
        assert self._thought is not None
        return self._thought.start[len(self._heard.lstrip()) :]

    @property
    def begun(self) -> bool:
        """Whether a part of that mark is there already."""
        return bool(self._heard.strip())

    def skip(self) -> None:
        """There is none."""
        self.stage = Stage.ANSWERING


class AfterReasoning:
    """A mask that holds after the reasoning; before the answer, where there may be some, its mark
    is allowed as well."""

    def __init__(self, mask: TokenMask, thought: Thought, spelling: Spelling) -> None:
        self._mask, self._spelling = mask, spelling
        self._reasoning = Reasoning(thought)
        self._spaced = False
        """White space may follow: what comes next is the first after the reasoning."""

    @property
    def active(self) -> bool:
        """See `Mask`."""
        return self._reasoning.stage is not Stage.THINKING

    def apply(self, row: Row) -> None:
        """See `Mask`."""
        also = self._allowed_too()
        kept = row[also].copy()
        if self._reasoning.stage is Stage.BEGINNING and self._reasoning.begun:
            row.fill(-np.inf)
        else:
            self._mask.apply(row)
        row[also] = kept

    def _allowed_too(self) -> NDArray[np.int64]:
        if self._reasoning.stage is Stage.BEGINNING:
            return self._spelling.beginning(self._reasoning.opening)
        return self._spaces() if self._spaced else np.empty(0, np.int64)

    def _spaces(self) -> NDArray[np.int64]:
        both = [self._spelling.beginning(text) for text in (b"\n\n", b" ")]
        return np.concatenate(both)

    def accept(self, token: int) -> bool:
        """See `Mask`."""
        reasoning = self._reasoning
        beginning = reasoning.stage is Stage.BEGINNING and not reasoning.begun
        if beginning and self._mask.takes([token]):
            reasoning.skip()
        if reasoning.stage is Stage.ANSWERING:
            skipped = self._spaced and token in self._spaces() and not self._mask.takes([token])
            self._spaced = False
            return skipped or self._mask.accept(token)
        if token in self._spelling.vocab.end_ids:
            return False
        rest = reasoning.hear(self._spelling.bytes_of(token))
        if rest is not None:
            tokens = self._spelling.tokens(rest.lstrip())
            self._spaced = not tokens
            return all(self._mask.accept(one) for one in tokens if self._mask.takes([one]))
        return True

    def forced(self) -> list[int]:
        """See `Mask`."""
        free = self._spaced or self._reasoning.stage is not Stage.ANSWERING
        return [] if free else self._mask.forced()


class CallWatch:
    """Lets an answer pass until a call begins, and holds this to its grammar. Whatever only looks
    like one, since the grammar has no such call, passes too."""

    def __init__(self, mask: TokenMask, guide: Guide, spelling: Spelling) -> None:
        self._mask, self._spelling = mask, spelling
        self._triggers, self._beginning = guide.triggers, guide.beginning
        self._longest = max(map(len, guide.triggers))
        self._reasoning = Reasoning(guide.thought)
        self._text = b""
        self._call: TokenMask | None = None

    @property
    def active(self) -> bool:
        """See `Mask`."""
        return self._call is not None

    def apply(self, row: Row) -> None:
        """See `Mask`."""
        if self._call is not None:
            self._call.apply(row)

    def accept(self, token: int) -> bool:
        """See `Mask`."""
        if self._call is not None:
            return self._call.accept(token)
        if token in self._spelling.vocab.end_ids:
            return False
        text = self._reasoning.hear(self._spelling.bytes_of(token))
        if text is not None and self._triggers:
            self._text += text
            self._look_at_the_beginning() if self._beginning else self._look()
        return True

    def forced(self) -> list[int]:
        """See `Mask`."""
        return self._call.forced() if self._call is not None else []

    def _look_at_the_beginning(self) -> None:
        text = self._text.lstrip()
        if any(text.startswith(trigger) for trigger in self._triggers):
            self._hold(text)
        if not any(trigger.startswith(text) for trigger in self._triggers):
            self._triggers = ()

    def _look(self) -> None:
        text = self._text
        while self._call is None:
            found = [at for trigger in self._triggers if (at := text.find(trigger)) >= 0]
            if not found:
                break
            self._hold(text[min(found) :])
            text = text[min(found) + 1 :]
        self._text = text[-self._longest :]

    def _hold(self, text: bytes) -> None:
        """A call seems to begin with the text."""
        mask, tokens = self._mask.fresh(), self._spelling.tokens(text)
        if mask.takes(tokens) and all(map(mask.accept, tokens)):
            self._call = mask


def guided(guide: Guide, compiler: ConstraintCompiler, spelling: Spelling) -> Mask:
    """The mask of one answer. Raises RequestInvalid naming what cannot be enforced."""
    try:
        mask = compiler.compile(guide.constraint)
    except RequestInvalid as error:
        if guide.fallback is None:
            raise
        logger.info("arguments of calls are not held to their schemas: %s", error)
        mask = compiler.compile(guide.fallback)
    if guide.triggers:
        return CallWatch(mask, guide, spelling)
    if guide.thought is not None:
        return AfterReasoning(mask, guide.thought, spelling)
    return mask
