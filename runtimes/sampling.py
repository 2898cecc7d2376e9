"""Drawing the next tokens of many requests from a matrix of logits.

Every request has a sampler: its penalties, biases, mask and random stream. They change the row
first; then one pass over all rows chooses (`runtimes/choosing.py`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.chat import Sampling
from models.errors import RequestInvalid
from runtimes.choosing import Ask, Choose, choose
from runtimes.logprobs import log_softmax_top
from runtimes.uniforms import Uniforms

Row = NDArray[np.float32]

PENALTY_WINDOW = 64
_LARGEST = np.float32(1e30)


class Mask(Protocol):
    """A constraint on what may come next."""

    @property
    def active(self) -> bool:
        """Whether it has a say about the next token; only then is `apply` called."""
        ...

    def apply(self, row: Row) -> None:
        """Set every forbidden token's logit to -inf, in place."""
        ...

    def accept(self, token: int) -> bool:
        """Take note of the chosen token; False where the answer is complete with it. Raises
        RequestInvalid where the constraint cannot be followed any further."""
        ...

    def forced(self) -> list[int]:
        """The tokens that must come next, taken note of already."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token, with its raw logprob and the likeliest alternatives where they were asked for.

    `complete`: the request's constraint ends with it. `refused`: why the constraint cannot be
    followed any further."""

    token: int
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()
    complete: bool = False
    refused: RequestInvalid | None = None


@dataclass(frozen=True, slots=True)
class _Before:
    """A row as it was: the figures that logprobs are told from."""

    norm: float
    top: tuple[tuple[int, float], ...]
    row: Row


class Sampler:
    """One request's way of choosing. `logprobs`: how many alternatives to report, None for none."""

    def __init__(self, sampling: Sampling, logprobs: int | None, mask: Mask | None = None) -> None:
        self.how = sampling
        self.uniforms = Uniforms(sampling.seed)
        self._logprobs = logprobs
        self._mask = mask
        self._recent: list[int] = []
        self._counts: Counter[int] = Counter()
        self._bias_ids = np.array([i for i, _ in sampling.logit_bias], np.int64)
        self._bias = np.array([b for _, b in sampling.logit_bias], np.float32)
        s = sampling
        self._counts_matter = s.repeat_penalty != 1.0 or bool(
            s.presence_penalty or s.frequency_penalty
        )

    @property
    def depends_on_answer(self) -> bool:
        """Whether a token changes how the next one is chosen."""
        return self._counts_matter or self._masked

    @property
    def _masked(self) -> bool:
        return self._mask is not None and self._mask.active

    def draw(self, row: Row) -> Drawn:
        """Choose a token. `row` [vocab] may be written to."""
        return draw_rows([self], row[None])[0]

    def before(self, row: Row) -> _Before | None:
        """What logprobs need of a row, before anything changes it."""
        if self._logprobs is None:
            return None
        norm, top = log_softmax_top(row, self._logprobs)
        changes = len(self._bias_ids) or self._counts or self._masked
        return _Before(norm, top, row.copy() if changes else row)

    def prepare(self, row: Row) -> None:
        """Biases, penalties, the mask, in place."""
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias
        if self._counts:
            self._penalise(row)
        if self._mask is not None and self._mask.active:
            self._mask.apply(row)

    def accept(self, token: int) -> bool:
        """The answer goes on with a token: the one place where penalties and mask hear of it.
        Returns and raises as `Mask.accept`."""
        if self._counts_matter:
            self._remember(token)
        return self._mask.accept(token) if self._mask is not None else True

    def forced(self) -> list[int]:
        """Tokens that the answer must go on with, taken note of already; none where their logprobs
        are asked for, which only computing tells."""
        if self._mask is None or self._logprobs is not None:
            return []
        tokens = self._mask.forced()
        if self._counts_matter:
            for token in tokens:
                self._remember(token)
        return tokens

    def _remember(self, token: int) -> None:
        self._recent.append(token)
        self._counts[token] += 1
        if len(self._recent) > PENALTY_WINDOW and self.how.repeat_penalty != 1.0:
            # The OpenAI penalties count the whole answer, the repeat penalty a window; where both
            # are asked for the window wins, as in llama.cpp.
            old = self._recent.pop(0)
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]

    def _penalise(self, row: Row) -> None:
        ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        times = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        values = row[ids]
        if self.how.repeat_penalty != 1.0:
            p = self.how.repeat_penalty
            with np.errstate(over="ignore"):
                values = np.where(values > 0, values.astype(np.float64) / p, values * p)
        values = values - times * self.how.frequency_penalty - self.how.presence_penalty
        row[ids] = np.clip(
            values, -_LARGEST, _LARGEST
        )  # extreme penalties must not make infinities


# ---------------------------------------------------------------------- many at once


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of one request: the first follows its answer so far, each of the others
    follows one more of the tokens that were guessed (`drafts`)."""

    sampler: Sampler
    drafts: Sequence[int] = ()


class _Progress:
    """How far a run has come."""

    def __init__(self, run: Run, start: int) -> None:
        self.drawn: list[Drawn] = []
        self.goes_on = True
        self._run, self._start = run, start
        self._asked: list[_Before | None] = []
        self._one_by_one = False

    def asks(self, logits: Row) -> list[Ask]:
        """What can be chosen now: all rows, or the next one where it depends on the token before.
        Changes these rows."""
        sampler = self._run.sampler
        first = len(self.drawn)
        self._one_by_one = sampler.depends_on_answer
        last = first if self._one_by_one else len(self._run.drafts)
        rows = range(self._start + first, self._start + last + 1)
        self._asked = [sampler.before(logits[row]) for row in rows]
        for row in rows:
            sampler.prepare(logits[row])
        if sampler.how.temperature <= 0:
            return [Ask(row, sampler.how, 0.0) for row in rows]
        uniforms = sampler.uniforms.peek(len(rows))
        return [Ask(row, sampler.how, u) for row, u in zip(rows, uniforms, strict=True)]

    def take(self, tokens: Iterator[int]) -> None:
        """Hear what was chosen for the rows asked for."""
        drafts, used = self._run.drafts, 0
        for before, token in zip(self._asked, tokens, strict=False):
            if not self.goes_on:
                continue  # its draft was wrong
            used += 1
            at = len(self.drawn)
            drawn = self._accept(token, before)
            self.drawn.append(drawn)
            guessed = at < len(drafts) and drafts[at] == token
            self.goes_on = guessed and not drawn.complete and drawn.refused is None
            if self._run.sampler.depends_on_answer and not self._one_by_one:
                self.goes_on = False  # a constraint begins: the next rows know nothing of it
        if self._run.sampler.how.temperature > 0:
            self._run.sampler.uniforms.skip(used)

    def _accept(self, token: int, before: _Before | None) -> Drawn:
        complete, refused = False, None
        try:
            complete = not self._run.sampler.accept(token)
        except RequestInvalid as error:
            refused = error
        if before is None:
            return Drawn(token, complete=complete, refused=refused)
        logprob = float(before.row[token]) - before.norm
        return Drawn(token, logprob, before.top, complete, refused)


def draw_rows(samplers: Sequence[Sampler], logits: Row) -> list[Drawn]:
    """One token for each row of `logits` [n, vocab], which may be written to. What a request draws
    does not depend on the other rows."""
    return [drawn[0] for drawn in draw_runs([Run(s) for s in samplers], logits)]


def draw_run(sampler: Sampler, logits: Row, drafts: Sequence[int]) -> list[Drawn]:
    """Tokens of one request from `logits` [len(drafts) + 1, vocab]: see `draw_runs`."""
    return draw_runs([Run(sampler, drafts)], logits)[0]


def draw_runs(runs: Sequence[Run], logits: Row, choose: Choose = choose) -> list[list[Drawn]]:
    """Draw at each run's rows in turn, as long as the drawn token is the one that was guessed: the
    guessed ones that were right, then the first other one (or one more, where all were right).
    What is drawn is what drawing one by one, without guesses, would draw. A run also ends with its
    constraint.

    `logits` [n, vocab] holds the runs' rows one after the other, and may be written to."""
    progress: list[_Progress] = []
    row = 0
    for run in runs:
        progress.append(_Progress(run, row))
        row += len(run.drafts) + 1
    assert row == len(logits), "a row for each token to be drawn"
    going = progress
    while going:
        asks = [ask for one in going for ask in one.asks(logits)]
        tokens = iter(choose(logits, asks))
        for one in going:
            one.take(tokens)
        going = [one for one in going if one.goes_on]
    return [one.drawn for one in progress]
