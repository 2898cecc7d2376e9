"""The best few entries of each row of logits, exactly, without sorting or partitioning the rows.

The k-th largest block maximum is a lower bound of the k-th largest entry. So only the blocks whose
maximum reaches it are looked into, and only the entries that reach it are sorted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtimes.maxima import Blocks, Doubles, Floats, Ints

Flags = NDArray[np.bool_]

_LOWEST = np.finfo(np.float32).min
_WIDEN = 2
_UNUSED = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_SIGN = np.uint32(0x8000_0000)
_REST = np.uint32(0x7FFF_FFFF)


@dataclass(frozen=True, slots=True)
class Shortlist:
    """For each row the ids and logits of its best entries, best first, equals in id order: so that
    equal rows give equal draws. `counts` of them are real, what follows is 0 and -inf."""

    ids: Ints
    values: Doubles
    counts: Ints


def shortlist(
    logits: Floats, rows: Sequence[int], wanted: Ints, reach: Doubles | None = None
) -> Shortlist:
    """The `wanted` (at least 1) best finite entries of some rows of `logits`, of those at most
    `reach` below the row's best. Rows that hold NaN or +inf have none."""
    size = logits.shape[1]
    # Narrow: many entries behind the blocks that are left. Wide: many blocks to sift.
    width = min(size, max(1, round(float(_WIDEN * wanted.max() * size) ** 0.5)))
    blocks = Blocks(size, width)
    maxima = np.empty((len(rows), width), np.float32)
    for i, row in enumerate(rows):
        blocks.fold(np.maximum, logits[row], maxima[i])
    bounds = _bounds(maxima, wanted, reach)
    at = np.flatnonzero(maxima >= bounds[:, None])
    which, block = at // width, at % width
    starts = np.asarray(rows, np.int64)[which] * size
    places = blocks.members(block) + starts[:, None]
    # Of members that do not exist the next row's values are taken, and thrown away below.
    values = np.empty(places.shape, np.float32)
    np.take(logits.reshape(-1), places, mode="clip", out=values)
    hits = np.flatnonzero(values >= bounds[which][:, None])
    of = hits // blocks.depth
    ids = places.reshape(-1)[hits] - starts[of]
    exist = ids < size
    return _sorted(which[of][exist], ids[exist], values.reshape(-1)[hits][exist], wanted)


def _bounds(maxima: Floats, wanted: Ints, reach: Doubles | None) -> Floats:
    """What an entry must reach to be looked at."""
    width = maxima.shape[1]
    bounds = np.full(len(maxima), _LOWEST, np.float32)
    bounded = np.flatnonzero(wanted <= width)
    if len(bounded):
        kth = width - wanted[bounded]
        parted = np.partition(maxima, np.unique(kth), axis=1)
        bounds[bounded] = np.maximum(_LOWEST, parted[bounded, kth])
    peaks = maxima.max(axis=1)
    if reach is not None:
        # A little lower than asked: whoever asks filters again, in its own arithmetic.
        with np.errstate(over="ignore", invalid="ignore"):
            floors = np.maximum(_LOWEST, peaks.astype(np.float64) - reach - 1e-6)
            lower = np.nextafter(floors.astype(np.float32), np.float32(-np.inf))
        bounds = np.maximum(bounds, np.maximum(_LOWEST, lower))
    bounds[~np.isfinite(peaks)] = np.nan
    return bounds


def _sorted(owner: Ints, ids: Ints, values: Floats, wanted: Ints) -> Shortlist:
    """Candidates, grouped by the row that owns them, as a shortlist."""
    found = np.bincount(owner, minlength=len(wanted))
    places = np.arange(len(owner)) - (np.cumsum(found) - found)[owner]
    keys = np.full((len(wanted), max(1, int(found.max()))), _UNUSED, np.uint64)
    keys[owner, places] = _keys(values, ids)
    keys.sort(axis=1)
    counts = np.minimum(found, wanted)
    keys = keys[:, : max(1, int(counts.max()))]
    real = np.arange(keys.shape[1], dtype=np.int64) < counts[:, None]
    return Shortlist(
        np.where(real, (keys & np.uint64(0xFFFF_FFFF)).astype(np.int64), 0),
        np.where(real, _values(keys), -np.inf),
        counts,
    )


def _keys(values: Floats, ids: Ints) -> NDArray[np.uint64]:
    """Integers in the order of falling values, then rising ids."""
    bits = (values + np.float32(0)).view(np.uint32)  # 0 is added to make -0 equal to 0
    falling = np.where(bits & _SIGN, bits, bits ^ _REST).astype(np.uint64)
    return (falling << np.uint64(32)) | ids.astype(np.uint64)


def _values(keys: NDArray[np.uint64]) -> Doubles:
    falling = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(falling & _SIGN, falling, falling ^ _REST)
    with np.errstate(invalid="ignore"):
        return bits.view(np.float32).astype(np.float64)
