"""Logprobs: what the whole softmax says of a row, before any filter."""

import math

import numpy as np

from runtimes.maxima import Floats, masses
from runtimes.shortlist import shortlist


def log_softmax_top(row: Floats, top: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log of the softmax's normaliser, and the `top` likeliest ids with their logprobs."""
    peak = float(row.max())
    total = masses(row[None], (0,), np.array([peak]), np.ones(1)).totals[0]
    norm = peak + math.log(total)
    if top <= 0:
        return norm, ()
    best = shortlist(row[None], (0,), np.array([top]))
    found = range(int(best.counts[0]))
    return norm, tuple((int(best.ids[0, i]), float(best.values[0, i]) - norm) for i in found)
