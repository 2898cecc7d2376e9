"""Shortlists and masses are those of the plain way, whatever the row looks like."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.chat import Sampling
from runtimes.choosing import Ask, choose
from runtimes.maxima import masses
from runtimes.shortlist import shortlist
from tests.runtimes.perrow import candidates, kept

FloatRows = NDArray[np.float32]
HUGE = float(np.finfo(np.float32).max)


@st.composite
def matrices(draw: Any, most: int = 5) -> FloatRows:
    """Rows with ties, masked tokens, all masked but one, and huge values, of any width."""
    size = draw(st.integers(1, 700))
    rows: list[NDArray[np.float64]] = []
    for _ in range(draw(st.integers(1, most))):
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        row = rng.standard_normal(size) * draw(st.sampled_from([0.0, 0.01, 3.0, 30.0, 1e30]))
        match draw(st.sampled_from(["as it is", "ties", "masked", "alone", "huge", "signs"])):
            case "ties":
                row = np.round(row)
            case "masked":
                row[rng.random(size) < draw(st.floats(0, 1))] = -np.inf
                row[rng.integers(size)] = 1.0
            case "alone":
                row[np.arange(size) != rng.integers(size)] = -np.inf
            case "huge":
                row[rng.random(size) < 0.5] = HUGE
                row[rng.random(size) < 0.5] = -HUGE
            case "signs":
                row = rng.choice([0.0, -0.0, 1.0, -1.0], size)
            case _:
                pass
        rows.append(row)
    return np.array(rows).astype(np.float32)


@settings(max_examples=300, deadline=None)
@given(logits=matrices(), data=st.data())
def test_a_shortlist_holds_what_sorting_the_whole_row_puts_first(
    logits: FloatRows, data: st.DataObject
) -> None:
    n, size = logits.shape
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4))
    wanted = np.array(
        data.draw(st.lists(st.integers(1, size + 9), min_size=len(rows)))[: len(rows)]
    )
    found = shortlist(logits, rows, wanted)
    for i, (row, most) in enumerate(zip(rows, wanted, strict=True)):
        expected = candidates(logits[row], int(most))
        assert found.counts[i] == len(expected)
        assert found.ids[i, : len(expected)].tolist() == expected.tolist()
        assert found.values[i, : len(expected)].tolist() == logits[row][expected].tolist()
        assert np.all(found.values[i, len(expected) :] == -np.inf)


@settings(deadline=None)
@given(logits=matrices(), reach=st.floats(0, 50))
def test_a_reach_leaves_out_only_what_is_further_below_the_best(
    logits: FloatRows, reach: float
) -> None:
    n, size = logits.shape
    found = shortlist(logits, range(n), np.full(n, size), np.full(n, reach))
    for i, row in enumerate(logits.astype(np.float64)):
        within = np.isfinite(row) & (row >= row.max() - reach)
        assert set(np.flatnonzero(within)) <= set(found.ids[i, : found.counts[i]].tolist())
        if reach < 1e6 > np.abs(row[np.isfinite(row)]).max():
            assert found.values[i, : found.counts[i]].min() >= row.max() - reach - 0.2


@settings(deadline=None)
@given(logits=matrices(), temperature=st.sampled_from([0.1, 0.7, 1.0, 2.0]))
def test_masses_add_up_to_the_softmax_normaliser(logits: FloatRows, temperature: float) -> None:
    n = len(logits)
    wide = logits.astype(np.float64)
    peaks = wide.max(axis=1)
    expected = np.exp((wide - peaks[:, None]) / temperature).sum(axis=1)
    found = masses(logits, range(n), peaks, np.full(n, temperature)).totals
    assert found == pytest.approx(expected, rel=1e-5)


@settings(max_examples=300, deadline=None)
@given(
    logits=matrices(1),
    how=st.builds(
        Sampling,
        temperature=st.just(1e6),  # flat: every token that is kept can be reached
        top_k=st.sampled_from([0, 1, 3, 40, 600]),
        top_p=st.sampled_from([0.0, 0.3, 0.9, 0.95, 0.999, 1.0]),
        min_p=st.sampled_from([0.0, 1e-6, 0.05, 0.5, 1.0]),
    ),
)
def test_the_filters_keep_what_the_plain_way_keeps(logits: FloatRows, how: Sampling) -> None:
    ids, keep = kept(logits[0], how)
    asks = [Ask(0, how, u) for u in (0.0, 1 - 2**-53)]
    first, last = choose(logits, asks)
    everything = not 0 < how.top_k < logits.shape[1] and how.top_p >= 1 and how.min_p <= 0
    if everything:  # then nothing is sorted
        assert {first, last} <= set(ids.tolist())
        return
    assert first == ids[0]
    at = ids.tolist().index(last)
    if at != keep - 1:  # the same but for the rounding of a sum at the very edge of top-p
        p = np.exp(logits[0][ids].astype(np.float64) - float(logits[0][ids[0]]))
        share = np.cumsum(p)[min(at, keep - 1)] / p.sum()
        assert share == pytest.approx(how.top_p, abs=1e-6)
