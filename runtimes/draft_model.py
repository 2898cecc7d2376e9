"""A small model that guesses for a large one with the same vocabulary (speculative decoding,
https://arxiv.org/abs/2211.17192; the large one verifies by drawing its own tokens).

Its memory follows the requests' tokens by itself: a sequence for each request, begun from whatever
other sequence has the most in common with it.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtimes.base import CellsExhausted, Executor, Handle, Logits, Row
from runtimes.cost import StepCost
from runtimes.drafting import Proposal
from runtimes.messages import Vocab
from runtimes.radix import Tokens, common_prefix

# Guessing stops where the model itself is less sure of a token than this.
LEAST_SURE = 0.5
# Weight of the newest measurement of a step.
_NEWEST = 0.2
# Two vocabularies are the same where so many of the ids that both have stand for the same bytes;
# a wrong one among the others costs a draft, never a wrong answer.
_SAME_SHARE = 0.99

_NONE: Tokens = np.empty(0, np.int32)


def same_vocabulary(a: Vocab, b: Vocab) -> bool:
    """Whether token ids of one model mean the same to the other."""
    both = min(len(a.pieces), len(b.pieces))
    same = sum(x == y for x, y in zip(a.pieces, b.pieces, strict=False))
    return both > 0 and same >= _SAME_SHARE * max(len(a.pieces), len(b.pieces))


@dataclass(slots=True, eq=False)
class _Sequence:
    """Memory of the draft model: of `tokens`, then of `guessed` ones."""

    handle: Handle
    tokens: Tokens
    guessed: Tokens
    used: int = 0


class DraftModel:
    """Guesses for all requests of a model. Calls come from the thread that loaded it."""

    def __init__(
        self,
        executor: Executor,
        vocab_size: int,
        context: int,
        least_sure: float = LEAST_SURE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.seconds = 0.0
        """What guessing one token takes; 0 until it was measured."""
        self._x, self._vocab_size, self._clock = executor, vocab_size, clock
        self._least_sure = least_sure
        self._context = min(context, executor.caps.cells)
        self._cost = StepCost(executor.caps.max_rows)
        self._sequences: list[_Sequence] = []
        self._owned: dict[int, _Sequence] = {}
        self._now = 0

    def keep(self, jobs: Collection[int]) -> None:
        """Only these requests are being written: other sequences may be taken for new ones."""
        self._owned = {job: s for job, s in self._owned.items() if job in jobs}

    def guess(self, job: int, known: Tokens, most: int) -> tuple[int, ...]:
        """Up to `most` tokens to follow `known`, which only grows between calls for a job. Nothing
        while its memory still lags behind: each call then reads a chunk."""
        if len(known) + most > self._context:
            return ()
        try:
            return self._guess(job, known, most)
        except CellsExhausted:
            self._make_room()
            return ()

    def _guess(self, job: int, known: Tokens, most: int) -> tuple[int, ...]:
        sequence = self._owned.get(job)
        if sequence is None:
            sequence = self._begin(known)
            if sequence is None:
                return ()
            self._owned[job] = sequence
        self._now += 1
        sequence.used = self._now
        self._take_back(sequence, known)
        return self._go_on(sequence, known, most) if self._catch_up(sequence, known) else ()

    # ------------------------------------------------------------------ memory

    def _take_back(self, sequence: _Sequence, known: Tokens) -> None:
        """Drop guesses that turned out wrong."""
        held = len(sequence.tokens)
        right = held + common_prefix(sequence.guessed, known[held:])
        self._cut(sequence, known, min(right, len(known) - 1))

    def _cut(self, sequence: _Sequence, known: Tokens, length: int) -> None:
        done = self._x.cut(sequence.handle, length)
        assert done, "only memory that can be cut is a draft model's"
        sequence.tokens, sequence.guessed = known[:length], _NONE

    def _begin(self, known: Tokens) -> _Sequence | None:
        """A sequence for a new request: a branch of the one that has the most in common with it."""
        shared = [common_prefix(s.tokens, known[:-1]) for s in self._sequences]
        best = max(range(len(shared)), key=shared.__getitem__, default=None)
        source = self._sequences[best] if best is not None and shared[best] else None
        if len(self._sequences) >= self._x.caps.max_sequences:
            victim = self._idlest()
            if victim is None:
                return None
            if victim is source:
                self._cut(victim, known, shared[best or 0])
                return victim
            self._close(victim)
        if source is None or best is None:
            made = _Sequence(self._x.open(), _NONE, _NONE)
        else:
            handle = self._x.fork(source.handle, shared[best])
            assert handle is not None, "only memory that can be forked is a draft model's"
            made = _Sequence(handle, known[: shared[best]], _NONE)
        self._sequences.append(made)
        return made

    def _idlest(self) -> _Sequence | None:
        owned = set(map(id, self._owned.values()))
        idle = [s for s in self._sequences if id(s) not in owned]
        return min(idle, key=lambda s: s.used, default=None)

    def _make_room(self) -> None:
        """Cells ran out: whoever was unused for longest gives its own up."""
        victim = self._idlest() or min(self._sequences, key=lambda s: s.used)
        self._owned = {job: s for job, s in self._owned.items() if s is not victim}
        self._close(victim)

    def _close(self, sequence: _Sequence) -> None:
        self._x.close(sequence.handle)
        self._sequences.remove(sequence)

    # ------------------------------------------------------------------ computing

    def _catch_up(self, sequence: _Sequence, known: Tokens) -> bool:
        """Read a chunk of what is missing; whether only the last known token is left. Streams wait
        for it, so it is half of what a chunk of the large model may be."""
        start = len(sequence.tokens)
        missing = len(known) - 1 - start
        if not missing:
            return True
        count = min(missing, max(1, self._cost.budget(1) // 2))
        began = self._clock()
        rows = [Row(sequence.handle, known[start : start + count], start, 0)]
        self._x.step(rows, lambda _: None)
        self._cost.observe(count, self._clock() - began)
        sequence.tokens = known[: start + count]
        return count == missing

    def _go_on(self, sequence: _Sequence, known: Tokens, most: int) -> tuple[int, ...]:
        """Guess token after token, as long as the model is sure of them."""
        guessed: list[int] = []
        token, end = int(known[-1]), len(known)
        while len(guessed) < most:
            token, sure = self._next(sequence.handle, token, end - 1 + len(guessed))
            sequence.tokens = known
            sequence.guessed = np.array(guessed, np.int32)
            if sure < self._least_sure:
                break
            guessed.append(token)
        return tuple(guessed)

    def _next(self, handle: Handle, token: int, position: int) -> tuple[int, float]:
        """The likeliest token after `token`, and its probability."""
        found: list[tuple[int, float]] = []
        began = self._clock()
        self._x.step(
            [Row(handle, [token], position, 1)],
            lambda logits: found.append(_likeliest(logits, self._vocab_size)),
        )
        took = self._clock() - began
        self.seconds += _NEWEST * (took - self.seconds) if self.seconds else took
        return found[0]


def _likeliest(logits: Logits, vocab_size: int) -> tuple[int, float]:
    row: NDArray[np.float32] = logits.row(0)[:vocab_size]
    best = int(row.argmax())
    return best, 1.0 / float(np.exp(row - row[best]).sum())


class ModelDrafter:
    """The draft model's guesses for one request (a `Drafter`)."""

    free = False
    assumed = (0.7,)

    def __init__(self, model: DraftModel, job: int) -> None:
        self._model, self._job = model, job

    @property
    def seconds(self) -> float:
        return self._model.seconds

    def propose(self, known: Tokens, most: int) -> Proposal:
        """See `Drafter`."""
        return Proposal(self._model.guess(self._job, known, most))
