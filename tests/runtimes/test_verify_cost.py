"""The curve of what steps cost by their rows, from few and noisy measurements."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.verify_cost import VerifyCost

# Milliseconds of a step by its rows, on two CPU cores.
CPU = {1: 18.8, 2: 32.5, 4: 49.8, 8: 87.0, 16: 196.0, 32: 363.0}


def measured(widths: Sequence[int], times: int = 3) -> VerifyCost:
    cost = VerifyCost()
    for rows in [*widths] * times:
        cost.observe(rows, CPU[rows])
    return cost


def test_costs_between_measured_widths_are_interpolated() -> None:
    cost = VerifyCost()
    for rows, seconds in ((1, 10.0), (4, 40.0), (5, 50.0), (6, 60.0)):
        cost.observe(rows, seconds)
    assert [cost.seconds(n) for n in (1, 4)] == [10.0, 40.0]
    assert cost.seconds(5) == pytest.approx(40.0 + 10.0 * 1 / 1.5)  # 5 and 6 rows share a class


def test_an_unseen_width_is_hoped_to_be_cheaper_than_the_line_until_it_is_seen() -> None:
    cost = measured((1, 16))
    line = 18.8 + (196.0 - 18.8) * 7 / 15
    assert 0.7 * line < cost.seconds(8) < 0.9 * line
    cost.observe(8, 100.0)
    assert cost.seconds(8) == 100.0


@given(st.lists(st.tuples(st.integers(1, 600), st.floats(0.001, 10.0)), max_size=60))
def test_more_rows_never_cost_less(steps: list[tuple[int, float]]) -> None:
    cost = VerifyCost()
    for rows, seconds in steps:
        cost.observe(rows, seconds)
    curve = [cost.seconds(rows) for rows in range(1, 600)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(curve))


def test_a_slow_step_now_and_then_changes_nothing() -> None:
    cost = VerifyCost()
    for step in range(90):
        cost.observe(1, 200.0 if step % 4 == 3 else 18.8)
    assert cost.seconds(1) == 18.8


def test_a_single_slow_step_closes_a_width_only_for_a_while() -> None:
    cost = measured((1, 4))
    cost.observe(8, 2000.0)
    assert cost.seconds(8) == 2000.0
    for _ in range(65):
        cost.observe(4, CPU[4])
    assert cost.seconds(8) < 100.0


def test_a_width_is_stale_until_seen_three_times_and_again_when_long_unseen() -> None:
    cost = VerifyCost()
    seen: list[bool] = []
    for _ in range(3):
        seen.append(cost.stale(1))
        cost.observe(1, 18.8)
    assert seen == [True, True, True]
    assert not cost.stale(1)
    for _ in range(600):
        cost.observe(4, 49.8)
    assert cost.stale(1)


def test_old_samples_make_way_when_a_width_is_seen_again_after_long() -> None:
    cost = measured((1,), times=9)
    for _ in range(600):
        cost.observe(4, 150.0)
    cost.observe(1, 60.0)
    assert cost.seconds(1) == 60.0
