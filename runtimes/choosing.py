"""Choosing one token a row: the filters and the draw, over many rows at once.

The filters run in llama.cpp's order (its default sampler chain): top-k, top-p, min-p, then
temperature, then one draw. A row's choice depends on that row alone, bit by bit, whatever rows are
beside it: all sums over a row are taken from left to right, and what pads the arrays adds zeros.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.chat import Sampling
from runtimes.maxima import Doubles, Floats, Ints, masses
from runtimes.shortlist import Shortlist, shortlist

# Lists up to this length are made for all rows together, longer ones for a row at a time.
_TOGETHER = 512
# Where top-k does not say how many candidates there are: so many at first, then so many times more.
_FIRST, _MORE = 128, 16
# A thread is woken for at least so many logits.
_THREAD_LOGITS = 500_000


@dataclass(frozen=True, slots=True)
class Ask:
    """Choose from `row` of the matrix, with a number of the request's random stream."""

    row: int
    how: Sampling
    uniform: float


def choose(logits: Floats, asks: Sequence[Ask]) -> list[int]:
    """A token for each ask. `logits` [n, vocab] is not written to."""
    size = logits.shape[1]
    tokens = [0] * len(asks)
    plain: list[int] = []
    listed: list[int] = []
    for i, ask in enumerate(asks):
        if ask.how.temperature <= 0:
            # Row by row is as fast as one argmax over the matrix, and needs no copy of a part.
            tokens[i] = int(logits[ask.row].argmax())
        elif _top_k(ask.how, size) == size and ask.how.top_p >= 1 and ask.how.min_p <= 0:
            plain.append(i)
        else:
            listed.append(i)
    for part, function in ((plain, _choose_plain), (listed, _choose_listed)):
        if part:
            chosen = function(logits, [asks[i] for i in part])
            for i, token in zip(part, chosen, strict=True):
                # Without a single finite logit, or with one that is not a number, nothing is drawn.
                tokens[i] = token if token >= 0 else int(logits[asks[i].row].argmax())
    return tokens


Choose = Callable[[Floats, Sequence[Ask]], list[int]]


class ThreadedChoice:
    """`choose` on up to `threads` threads, some rows each, where there are enough of them."""

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._pool = ThreadPoolExecutor(max(1, threads - 1), thread_name_prefix="choose")

    def __call__(self, logits: Floats, asks: Sequence[Ask]) -> list[int]:
        """See `choose`."""
        parts = min(self._most, len(asks), len(asks) * logits.shape[1] // _THREAD_LOGITS)
        if parts < 2:
            return choose(logits, asks)
        size = -(-len(asks) // parts)
        others = [
            self._pool.submit(choose, logits, asks[start : start + size])
            for start in range(size, len(asks), size)
        ]
        tokens = choose(logits, asks[:size])
        for other in others:
            tokens += other.result()
        return tokens


def _top_k(how: Sampling, size: int) -> int:
    return how.top_k if 0 < how.top_k < size else size


def _column(asks: Sequence[Ask], value: Callable[[Sampling], float]) -> Doubles:
    return np.array([value(ask.how) for ask in asks], np.float64)


def _peaks(logits: Floats, rows: Sequence[int]) -> Doubles:
    return np.array([logits[row].max() for row in rows], np.float64)


# ---------------------------------------------------------------------- no filter


def _choose_plain(logits: Floats, asks: Sequence[Ask]) -> list[int]:
    """Draw from whole rows: first the block, by the blocks' masses, then the entry in it. -1 where
    that cannot be done."""
    rows = [ask.row for ask in asks]
    peaks = _peaks(logits, rows)
    broken = ~np.isfinite(peaks)
    heats = np.maximum(_column(asks, lambda how: how.temperature), 1e-30)
    mass = masses(logits, rows, peaks, heats)
    cumulative = mass.cumulative
    each = np.arange(len(rows))
    targets = np.array([ask.uniform for ask in asks]) * mass.totals
    block = _first_above(cumulative, targets)
    before = np.where(block > 0, cumulative[each, block - 1], 0.0)
    with np.errstate(all="ignore"):
        inside = (targets - before) / (cumulative[each, block] - before)
        ids = mass.blocks.members(block)
        size = logits.shape[1]
        values = logits[np.array(rows)[:, None], np.minimum(ids, size - 1)].astype(np.float64)
        values[ids >= size] = -np.inf
        within = np.cumsum(np.exp((values - peaks[:, None]) / heats[:, None]), axis=1)
        chosen = ids[each, _first_above(within, inside * within[:, -1])]
    return np.where(broken, -1, chosen).tolist()


def _first_above(cumulative: Doubles, targets: Doubles) -> Ints:
    """In each row the first place whose sum is above the target, but none after the last that adds
    something (where a product was rounded up to the whole)."""
    found = (cumulative <= targets[:, None]).sum(axis=1)
    return np.minimum(found, (cumulative < cumulative[:, -1:]).sum(axis=1))


# ---------------------------------------------------------------------- filters


@dataclass(slots=True)
class _Filters:
    """The filters of some rows, a column each. `totals` is the mass of a whole row, where top-p
    takes its share of that."""

    asks: Sequence[Ask]
    limits: Ints
    totals: Doubles
    reach: Doubles

    def part(self, indices: Sequence[int]) -> "_Filters":
        """Those of some of the rows."""
        of = np.array(indices, np.int64)
        asks = [self.asks[i] for i in indices]
        return _Filters(asks, self.limits[of], self.totals[of], self.reach[of])


def _choose_listed(logits: Floats, asks: Sequence[Ask]) -> list[int]:
    """Draw from the best entries of each row; -1 where there are none."""
    filters = _filters(logits, asks)
    size = logits.shape[1]
    tokens = [-1] * len(asks)
    queue: list[tuple[list[int], Ints]] = []
    first = np.where(filters.limits < size, filters.limits, min(_FIRST, size))
    together = np.flatnonzero(first <= _TOGETHER)
    if len(together):
        queue.append((together.tolist(), first[together]))
    queue += [([int(i)], first[i : i + 1]) for i in np.flatnonzero(first > _TOGETHER)]
    while queue:
        indices, wanted = queue.pop()
        mine = filters.part(indices)
        found = shortlist(logits, [ask.row for ask in mine.asks], wanted, mine.reach)
        chosen, enough = _draw(found, mine)
        enough |= (found.counts < wanted) | (wanted >= mine.limits)
        for at, i in enumerate(indices):
            if enough[at]:
                tokens[i] = int(chosen[at])
            else:
                queue.append(([i], np.minimum(wanted[at : at + 1] * _MORE, size)))
    return tokens


def _filters(logits: Floats, asks: Sequence[Ask]) -> _Filters:
    size = logits.shape[1]
    limits = np.array([_top_k(ask.how, size) for ask in asks], np.int64)
    totals = np.full(len(asks), np.nan)
    reach = np.full(len(asks), np.inf)
    whole = [i for i, ask in enumerate(asks) if limits[i] == size and ask.how.top_p < 1]
    if whole:
        rows = [asks[i].row for i in whole]
        peaks = _peaks(logits, rows)
        totals[whole] = masses(logits, rows, peaks, np.ones(len(rows))).totals
    for i, ask in enumerate(asks):
        # With top-k, top-p takes its share of all k, those that min-p drops included.
        if ask.how.min_p > 0 and limits[i] == size:
            reach[i] = -np.log(min(1.0, ask.how.min_p))
    return _Filters(asks, limits, totals, reach)


def _draw(found: Shortlist, filters: _Filters) -> tuple[Ints, NDArray[np.bool_]]:
    """A token for each row (-1: no candidates), and whether its list was long enough for top-p."""
    asks = filters.asks
    top_p, min_p = _column(asks, lambda how: how.top_p), _column(asks, lambda how: how.min_p)
    heats = _column(asks, lambda how: how.temperature)[:, None]
    with np.errstate(all="ignore"):
        below = found.values - found.values[:, :1]
        p = np.exp(below)
        mass = np.cumsum(p, axis=1)
        totals = np.where(np.isnan(filters.totals), mass[:, -1], filters.totals)
        needed = np.where(top_p < 1, top_p * totals, np.inf)
        keep = np.minimum((mass < needed[:, None]).sum(axis=1) + 1, found.counts)
        likely = np.maximum((p >= min_p[:, None]).sum(axis=1), 1)
        keep = np.where(min_p > 0, np.minimum(keep, likely), keep)
        heated = np.exp(below / heats)
    heated[np.arange(heated.shape[1]) >= keep[:, None]] = 0.0
    mass_kept = np.cumsum(heated, axis=1)
    targets = np.array([ask.uniform for ask in asks]) * mass_kept[:, -1]
    picked = np.minimum((mass_kept <= targets[:, None]).sum(axis=1), np.maximum(keep - 1, 0))
    tokens = found.ids[np.arange(len(picked)), picked]
    return np.where(found.counts > 0, tokens, -1), mass[:, -1] >= needed
