"""The plain way to draw a token from one row, which the fast one must agree with."""

import numpy as np
from numpy.typing import NDArray

from models.chat import Sampling

FloatRow = NDArray[np.float32]


def candidates(row: FloatRow, top_k: int) -> NDArray[np.int64]:
    """The finite entries, best first, equals in id order; the first `top_k` where that is not 0."""
    ids = np.flatnonzero(np.isfinite(row))
    ids = ids[np.lexsort((ids, -row[ids].astype(np.float64)))]
    return ids[:top_k] if top_k > 0 else ids


def quick_candidates(row: FloatRow, top_k: int) -> NDArray[np.int64]:
    """The same where nothing ties at the end of the list: what was fast for a single row."""
    if not 0 < top_k < len(row):
        return candidates(row, top_k)
    ids = np.argpartition(row, -top_k)[-top_k:]
    ids = ids[np.lexsort((ids, -row[ids]))]
    return ids[np.isfinite(row[ids])]


def kept(row: FloatRow, how: Sampling, *, quick: bool = False) -> tuple[NDArray[np.int64], int]:
    """The candidates, and how many of them top-p and min-p leave."""
    ids = (quick_candidates if quick else candidates)(row, how.top_k)
    logits = row[ids].astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        p = np.exp(logits - logits[0])
    p /= p.sum()
    keep = len(p)
    if how.top_p < 1.0:
        keep = min(keep, int(np.searchsorted(np.cumsum(p), how.top_p)) + 1)
    if how.min_p > 0:
        keep = min(keep, max(1, int((p >= how.min_p * p[0]).sum())))
    return ids, keep


def probabilities(row: FloatRow, how: Sampling, *, quick: bool = False) -> NDArray[np.float64]:
    """What each of the kept candidates is drawn with, in their order."""
    ids, keep = kept(row, how, quick=quick)
    heated = row[ids[:keep]].astype(np.float64) / how.temperature
    weights = np.exp(heated - heated[0])
    return weights / weights.sum()


def draw(row: FloatRow, how: Sampling, rng: np.random.Generator) -> int:
    """A token, by the way that was fast for a single row."""
    if how.temperature <= 0:
        return int(row.argmax())
    ids, keep = kept(row, how, quick=True)
    heated = row[ids[:keep]].astype(np.float64) / how.temperature
    cumulative = np.cumsum(np.exp(heated - heated[0]))
    drawn = rng.random() * float(cumulative[-1])
    return int(ids[min(int((cumulative <= drawn).sum()), keep - 1)])
