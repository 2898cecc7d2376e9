"""Texts as vectors, in a llama.cpp context of its own beside the one that writes.

How a model makes one vector of many tokens stands in its file. A model that looks both ways, or
that averages, must see a whole text in one step. One that reads from left to right and gives its
last token's vector reads in pieces, and computes nothing else for any other token: models that
write, and whose file says nothing, are asked that way.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from models.errors import DoesNotFit, EngineFailed
from runtimes.llamacpp import binding as c

# A step takes so many texts, and so many tokens where they do not have to be in one piece.
TEXTS = 16
PIECE = 512

Vector = NDArray[np.float32]
Texts = Sequence[Sequence[int]]


class Pooling(IntEnum):
    """How many vectors become one, in the library's numbers."""

    NONE = 0
    MEAN = 1
    FIRST = 2
    LAST = 3
    RANK = 4


def pooling_of(model: c.Model) -> Pooling:
    """What the file says; else the last token for models that write, the average for others."""
    said = c.said(model, "pooling_type")
    declared = next((kind for kind in Pooling if said == str(kind.value)), Pooling.NONE)
    if declared is not Pooling.NONE:
        return declared
    return Pooling.LAST if writes(model) else Pooling.MEAN


def writes(model: c.Model) -> bool:
    """Whether it is there to generate text, and not an encoder alone."""
    return c.has_decoder(model) and c.said(model, "attention.causal") != "false"


@dataclass(frozen=True, slots=True)
class _Open:
    """A context for texts of up to `tokens` together, and the batch that fills it."""

    context: c.Context
    memory: c.Memory
    batch: c.Batch
    tokens: int


class LlamaEmbedder:
    """`limit` is how many tokens a text may have, `size` how many numbers a vector. The context is
    as large as the texts so far needed."""

    def __init__(self, model: c.Model, threads: int, limit: int, log: c.Log) -> None:
        self.limit, self.size = limit, c.vector_size(model)
        self._model, self._threads, self._log = model, threads, log
        self._pooling = pooling_of(model)
        self._in_pieces = writes(model) and self._pooling is Pooling.LAST
        self._encodes = not c.has_decoder(model)
        self._opened: _Open | None = None

    def run(self, texts: Texts) -> Generator[None, None, list[Vector]]:
        """The vectors of texts, of 1 to `limit` tokens each, as the model gives them; stops after
        each step. Raises DoesNotFit or EngineFailed."""
        vectors: list[Vector] = []
        for group in _groups(texts):
            opened = self._open(sum(map(len, group)))
            yield from self._read(opened, group) if self._in_pieces else ()
            vectors += self._finish(opened, group)
            yield
        return vectors

    def release(self) -> None:
        """Free the context."""
        if self._opened is not None:
            c.free_context(self._opened.context)
            self._opened = None

    def _open(self, tokens: int) -> _Open:
        if self._opened is None or self._opened.tokens < tokens:
            self.release()
            room = max(PIECE, 1 << (tokens - 1).bit_length())
            rows = PIECE if self._in_pieces else room
            pooling = Pooling.NONE if self._in_pieces else self._pooling
            context = c.new_pooling_context(
                self._model,
                pooling=pooling,
                tokens=room,
                rows=rows,
                outputs=TEXTS if self._in_pieces else rows,
                sequences=TEXTS,
                threads=self._threads,
            )
            if context is None:
                raise DoesNotFit(
                    f"no memory to embed {tokens} tokens at once: {self._log.last_error()}. "
                    "Send shorter texts, or fewer of them."
                )
            self._opened = _Open(context, c.memory(context), c.Batch(rows), room)
        for seq in range(TEXTS if self._opened.memory else 0):
            c.seq_remove(self._opened.memory, seq)
        self._opened.batch.clear()
        return self._opened

    def _read(self, opened: _Open, group: Texts) -> Generator[None]:
        """All but the texts' last tokens, a piece at a time."""
        c.ask_for_vectors(opened.context, False)
        for seq, text in enumerate(group):
            at, end = 0, len(text) - 1
            while at < end:
                count = min(end - at, PIECE - opened.batch.count)
                opened.batch.add(text[at : at + count], at, seq, 0)
                at += count
                if opened.batch.count == PIECE:
                    self._compute(opened)
                    yield
        if opened.batch.count:
            self._compute(opened)

    def _finish(self, opened: _Open, group: Texts) -> list[Vector]:
        context, rows = opened.context, list[int]()
        c.ask_for_vectors(context, True)
        for seq, text in enumerate(group):
            if self._in_pieces:
                rows += opened.batch.add(text[-1:], len(text) - 1, seq, 1)
            else:
                opened.batch.add(text, 0, seq, len(text))
        self._compute(opened)
        if self._in_pieces:
            return [c.vector_of_row(context, row, self.size) for row in rows]
        return [c.vector_of_sequence(context, seq, self.size) for seq in range(len(group))]

    def _compute(self, opened: _Open) -> None:
        batch = opened.batch
        code = batch.encode(opened.context) if self._encodes else batch.decode(opened.context)
        batch.clear()
        if code:
            reason = self._log.last_error() or "no reason given"
            raise EngineFailed(f"llama.cpp could not embed (code {code}): {reason}")


def _groups(texts: Texts) -> list[Texts]:
    """The same texts in their order, as many together as a step takes."""
    groups: list[list[Sequence[int]]] = []
    tokens = 0
    for text in texts:
        tokens += len(text)
        if not groups or len(groups[-1]) == TEXTS or tokens > PIECE:
            groups.append([])
            tokens = len(text)
        groups[-1].append(text)
    return list(groups)
