"""Drawing tokens: the distribution, the filters, the penalties, and a seed's repeatability."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.chat import Sampling
from runtimes.logprobs import log_softmax_top
from runtimes.sampling import Sampler

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)


def row(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def draws(sampling: Sampling, logits: NDArray[np.float32], n: int) -> list[int]:
    sampler = Sampler(sampling, None)
    return [sampler.draw(logits.copy()).token for _ in range(n)]


def changed(base: Sampling, **changes: object) -> Sampling:
    from dataclasses import replace

    return replace(base, **changes)  # type: ignore[arg-type]


def test_temperature_zero_takes_the_likeliest_and_the_first_of_equals() -> None:
    assert draws(Sampling(temperature=0), row(0, 3, 3, 1), 3) == [1, 1, 1]


def test_tokens_are_drawn_as_often_as_the_softmax_says() -> None:
    logits = row(2.0, 1.0, 0.0, -1.0)
    n = 20_000
    expected = np.exp(logits) / np.exp(logits).sum() * n
    seen = np.bincount(draws(OPEN, logits, n), minlength=4)
    chi_square = ((seen - expected) ** 2 / expected).sum()
    assert chi_square < 16.3  # 99.9 % of the chi-square distribution with 3 degrees of freedom


def test_a_higher_temperature_flattens() -> None:
    logits = row(2.0, 0.0)
    cool = draws(changed(OPEN, temperature=0.5), logits, 4000).count(0)
    warm = draws(changed(OPEN, temperature=2.0), logits, 4000).count(0)
    assert abs(cool / 4000 - 1 / (1 + np.exp(-4))) < 0.02
    assert abs(warm / 4000 - 1 / (1 + np.exp(-1))) < 0.03


@pytest.mark.parametrize(
    ("change", "possible"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0}),  # the first alone holds 64 %
        ({"top_p": 0.7}, {0, 1}),
        ({"min_p": 0.2}, {0, 1}),  # the third has 13 % of the first
        ({"min_p": 0.3, "top_k": 0}, {0, 1}),
    ],
)
def test_filters_leave_only_the_likely_ones(change: dict[str, float], possible: set[int]) -> None:
    logits = row(2.0, 1.0, 0.0, -1.0)
    assert set(draws(changed(OPEN, **change), logits, 2000)) == possible


def test_a_seed_gives_the_same_draws_again_and_another_seed_others() -> None:
    logits = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    first = draws(OPEN, logits, 40)
    assert draws(OPEN, logits, 40) == first
    assert draws(changed(OPEN, seed=8), logits, 40) != first


def test_bias_and_penalties_move_logits() -> None:
    greedy = Sampling(temperature=0)
    assert draws(changed(greedy, logit_bias=((2, 5.0),)), row(3, 0, 0), 1) == [2]
    assert draws(changed(greedy, logit_bias=((0, -100.0),)), row(3, 1, 0), 1) == [1]
    assert draws(changed(greedy, presence_penalty=2.0), row(3, 2, 0), 3) == [0, 1, 0]
    assert draws(changed(greedy, frequency_penalty=1.5), row(3, 2, 0), 3) == [0, 1, 0]
    assert draws(changed(greedy, repeat_penalty=2.0), row(3, 2, -1), 2) == [0, 1]


@pytest.mark.parametrize("penalty", [1e-38, 1e-300, 1e38])
def test_extreme_penalties_still_draw_a_token(penalty: float) -> None:
    odd = changed(OPEN, repeat_penalty=penalty, presence_penalty=-2.0, temperature=2.0, top_k=1)
    assert set(draws(odd, row(3, 2, -1), 20)) <= {0, 1, 2}


def test_logprobs_are_of_the_full_softmax_whatever_the_filters() -> None:
    logits = row(2.0, 1.0, 0.0, -1.0)
    narrow = changed(OPEN, top_p=0.1, temperature=1.5, logit_bias=((3, 1.0),))
    drawn = Sampler(narrow, 3).draw(logits.copy())
    reference = logits - np.log(np.exp(logits).sum())
    assert drawn.token == 0
    assert drawn.logprob == pytest.approx(reference[0], abs=1e-6)
    assert [i for i, _ in drawn.top] == [0, 1, 2]
    assert [lp for _, lp in drawn.top] == pytest.approx(list(reference[:3]), abs=1e-6)


def test_a_masked_token_is_never_drawn() -> None:
    class OnlyOdd:
        active = True

        def apply(self, row: NDArray[np.float32]) -> None:
            row[::2] = -np.inf

        def accept(self, token: int) -> bool:
            return token % 2 == 1

        def forced(self) -> list[int]:
            return []

    sampler = Sampler(OPEN, None, OnlyOdd())
    assert {sampler.draw(row(9, 0, 9, 0)).token for _ in range(50)} == {1, 3}


@given(st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=60), st.integers(0, 5))
def test_top_logprobs_are_sorted_true_and_sum_to_at_most_one(values: list[float], top: int) -> None:
    logits = row(*values)
    top = min(top, len(values))
    norm, best = log_softmax_top(logits, top)
    probabilities = [lp for _, lp in best]
    assert probabilities == sorted(probabilities, reverse=True)
    assert sum(np.exp(probabilities)) <= 1 + 1e-5
    assert norm == pytest.approx(float(np.log(np.exp(logits.astype(np.float64)).sum())), abs=1e-4)
    if top:
        assert logits[best[0][0]] == logits.max()
