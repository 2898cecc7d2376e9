"""Drawing the next token from a row of logits.

The filters run in llama.cpp's order (its default sampler chain): penalties and biases, top-k,
top-p, min-p, then temperature, then one draw. Every request has a random stream of its own.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.chat import Sampling

Row = NDArray[np.float32]

PENALTY_WINDOW = 64
_LARGEST = np.float32(1e30)


class Mask(Protocol):
    """A constraint on what may come next."""

    def apply(self, row: Row) -> None:
        """Set every forbidden token's logit to -inf, in place."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token, with its raw logprob and the likeliest alternatives where they were asked for."""

    token: int
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()


def log_softmax_top(row: Row, top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log of the softmax's normaliser, and the `top` likeliest ids with their logprobs."""
    peak = float(row.max())
    norm = peak + float(np.log(np.exp(row - peak, dtype=np.float64).sum()))
    if top <= 0:
        return norm, ()
    best = np.argpartition(row, -top)[-top:]
    best = best[np.lexsort((best, -row[best]))]
    return norm, tuple((int(i), float(row[i]) - norm) for i in best)


class Sampler:
    """One request's way of choosing. `logprobs`: how many alternatives to report, None for none."""

    def __init__(self, sampling: Sampling, logprobs: int | None, mask: Mask | None = None) -> None:
        self._s = sampling
        self._logprobs = logprobs
        self._mask = mask
        self._rng = np.random.Generator(np.random.PCG64(sampling.seed))
        self._recent: list[int] = []
        self._counts: Counter[int] = Counter()
        self._bias_ids = np.array([i for i, _ in sampling.logit_bias], np.int64)
        self._bias = np.array([b for _, b in sampling.logit_bias], np.float32)

    def draw(self, row: Row) -> Drawn:
        """Choose a token. `row` [vocab] may be written to."""
        norm, top = (0.0, ())
        raw: Row | None = None
        if self._logprobs is not None:
            norm, top = log_softmax_top(row, self._logprobs)
            raw = row.copy() if self._changes_logits() else row
        if len(self._bias_ids):
            row[self._bias_ids] += self._bias
        self._penalise(row)
        if self._mask is not None:
            self._mask.apply(row)
        token = self._choose(row)
        if self._counts_matter():
            self._remember(token)
        if raw is None:
            return Drawn(token)
        return Drawn(token, float(raw[token]) - norm, top)

    def _changes_logits(self) -> bool:
        return bool(len(self._bias_ids) or self._counts or self._mask is not None)

    def _counts_matter(self) -> bool:
        s = self._s
        return s.repeat_penalty != 1.0 or bool(s.presence_penalty or s.frequency_penalty)

    def _remember(self, token: int) -> None:
        self._recent.append(token)
        self._counts[token] += 1
        if len(self._recent) > PENALTY_WINDOW and self._s.repeat_penalty != 1.0:
            # The OpenAI penalties count the whole answer, the repeat penalty a window; where both
            # are asked for the window wins, as in llama.cpp.
            old = self._recent.pop(0)
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]

    def _penalise(self, row: Row) -> None:
        if not self._counts:
            return
        ids = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        times = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        values = row[ids]
        if self._s.repeat_penalty != 1.0:
            p = self._s.repeat_penalty
            with np.errstate(over="ignore"):
                values = np.where(values > 0, values.astype(np.float64) / p, values * p)
        values = values - times * self._s.frequency_penalty - self._s.presence_penalty
        row[ids] = np.clip(
            values, -_LARGEST, _LARGEST
        )  # extreme penalties must not make infinities

    def _choose(self, row: Row) -> int:
        if self._s.temperature <= 0:
            return int(row.argmax())
        ids, logits = self._shortlist(row)
        p = np.exp(logits - logits[0], dtype=np.float64)
        p /= p.sum()
        keep = len(p)
        if self._s.top_p < 1.0:
            keep = int(np.searchsorted(np.cumsum(p), self._s.top_p)) + 1
        if self._s.min_p > 0:
            keep = min(keep, max(1, int((p >= self._s.min_p * p[0]).sum())))
        heated = logits[:keep].astype(np.float64) / self._s.temperature
        cumulative = np.cumsum(np.exp(heated - heated[0]))
        drawn = self._rng.random() * float(cumulative[-1])
        return int(ids[min(int((cumulative <= drawn).sum()), keep - 1)])

    def _shortlist(self, row: Row) -> tuple[NDArray[np.int64], Row]:
        """The candidates, likeliest first. Ties in id order, so that equal rows give equal
        draws."""
        if 0 < self._s.top_k < len(row):
            ids = np.argpartition(row, -self._s.top_k)[-self._s.top_k :]
        else:
            ids = np.flatnonzero(np.isfinite(row))
        ids = ids[np.lexsort((ids, -row[ids]))]
        values = row[ids]
        finite = int(np.isfinite(values).sum())
        return ids[:finite], values[:finite]
