"""The figures of a benchmark: what each promises, for any answers."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.client import Reply
from app.bench.measure import (
    Round,
    Targets,
    figures,
    on_time,
    over_rounds,
    percentile,
    ratios,
    tpot,
)

seconds = st.floats(0, 1000)
shares = st.floats(0, 1)
values = st.lists(seconds, min_size=1, max_size=40)
arrivals = values.map(sorted)
targets = st.builds(Targets, ttft_s=st.floats(0, 100), tpot_s=st.floats(0, 10))
counts = st.none() | st.integers(0, 200)


def reply(
    times: list[float], output: int | None, prompt: int | None = 10, cached: int | None = None
) -> Reply:
    return Reply("", tuple(times), "stop", prompt, cached, output)


replies = st.builds(reply, st.just([]) | arrivals, counts, counts, counts)
rounds = st.builds(
    Round,
    st.lists(replies, max_size=6).map(tuple),
    st.lists(st.just("no"), max_size=3).map(tuple),
    st.floats(0.001, 1000),
)


@given(values, shares)
def test_a_percentile_was_seen_and_splits_the_values(seen: list[float], share: float) -> None:
    found = percentile(seen, share)
    assert found in seen
    assert sum(value <= found for value in seen) >= share * len(seen)
    below = sum(value < found for value in seen)
    assert below < share * len(seen) or found == min(seen)


@given(values, shares, shares, st.randoms())
def test_percentiles_rise_and_do_not_mind_the_order(
    seen: list[float], one: float, other: float, random: Random
) -> None:
    low, high = (percentile(seen, share) for share in sorted((one, other)))
    assert low is not None
    assert high is not None
    assert min(seen) <= low <= high <= max(seen)
    mixed = list(seen)
    random.shuffle(mixed)
    assert percentile(mixed, one) == percentile(seen, one)


def test_known_percentiles() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert percentile(hundred, 0.5) == 50
    assert percentile(hundred, 0.95) == 95
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
    assert percentile([7.0], 0.95) == 7
    assert percentile([], 0.5) is None


@given(arrivals, targets)
def test_with_a_token_a_chunk_goodput_is_a_deadline_each(
    times: list[float], limits: Targets
) -> None:
    expected = sum(
        time <= limits.ttft_s + index * limits.tpot_s for index, time in enumerate(times)
    )
    assert on_time(times, len(times), limits) == expected


@given(arrivals, st.integers(0, 200), targets)
def test_goodput_is_a_share(times: list[float], tokens: int, limits: Targets) -> None:
    assert 0 <= on_time(times, tokens, limits) <= tokens
    assert on_time([0.0] * len(times), tokens, limits) == tokens


@given(arrivals, st.integers(1, 200), targets, st.floats(0, 10), st.floats(0, 10))
def test_goodput_never_gains_by_delay_nor_loses_by_patience(
    times: list[float], tokens: int, limits: Targets, delay: float, patience: float
) -> None:
    counted = on_time(times, tokens, limits)
    assert on_time([time + delay for time in times], tokens, limits) <= counted
    patient = Targets(limits.ttft_s + patience, limits.tpot_s + patience)
    assert on_time(times, tokens, patient) >= counted


def test_known_goodput() -> None:
    limits = Targets(ttft_s=1.0, tpot_s=0.5)
    assert on_time([1.0, 1.5, 2.0], 3, limits) == 3
    assert on_time([1.1, 1.5, 2.0], 3, limits) == 2
    # a pause after a quick start is no harm: the reader had not got there
    assert on_time([0.1, 0.2, 2.0], 3, limits) == 3
    # four tokens in two chunks: two with the first, two with the second
    assert on_time([0.5, 9.0], 4, limits) == 2
    # an end mark is counted and has no text; it counts with the last
    assert on_time([0.5, 1.0, 9.0], 4, limits) == 2
    assert on_time([], 4, limits) == 0


def test_time_per_token_needs_two_chunks_and_a_count() -> None:
    assert tpot(reply([1.0, 2.0, 3.0], 5)) == 0.5
    assert tpot(reply([1.0, 3.0], None)) is None
    assert tpot(reply([1.0], 5)) is None
    assert tpot(reply([1.0, 1.5], 1)) is None


def test_known_figures() -> None:
    played = Round(
        (reply([1.0, 2.0, 3.0], 3, 100, 80), reply([2.0, 3.0, 4.0], 3, 100, 20)), ("no",), 4.0
    )
    found = figures(played, Targets(1.0, 1.0))
    assert (found.requests, found.failed) == (3, 1)
    assert (found.prompt_tokens, found.output_tokens) == (200, 6)
    assert (found.ttft_p50_s, found.ttft_p95_s) == (1.0, 2.0)
    assert found.tpot_p50_s == 1.0
    assert found.tokens_per_s == 1.5
    assert found.goodput == 0.5
    assert found.cached_share == 0.5


def test_what_one_answer_does_not_tell_no_sum_tells() -> None:
    played = Round((reply([1.0, 2.0], 2), reply([1.0, 2.0], None, None)), (), 2.0)
    found = figures(played, Targets())
    assert found.ttft_p50_s == 1.0
    assert found.tpot_p50_s == 1.0
    assert (found.prompt_tokens, found.output_tokens) == (None, None)
    assert (found.tokens_per_s, found.goodput, found.cached_share) == (None, None, None)


def test_a_server_that_tells_cached_tokens_once_means_none_elsewhere() -> None:
    played = Round((reply([1.0], 1, 10, 5), reply([1.0], 1, 10, None)), (), 1.0)
    assert figures(played, Targets()).cached_share == 0.25


def test_a_round_without_answers_has_no_figures() -> None:
    found = figures(Round((), ("no", "no"), 1.0), Targets())
    assert (found.requests, found.failed) == (2, 2)
    assert found.wall_s is None
    assert found.ttft_p50_s is None
    assert found.goodput is None


@given(st.lists(rounds, min_size=1, max_size=5), targets)
def test_the_figure_of_rounds_lies_among_theirs(played: list[Round], limits: Targets) -> None:
    each = [figures(one, limits) for one in played]
    whole = over_rounds(each)
    assert whole.requests == sum(one.requests for one in each)
    for name in ("ttft_p50_s", "tpot_p50_s", "goodput", "tokens_per_s", "cached_share"):
        told = [value for one in each if (value := getattr(one, name)) is not None]
        found = getattr(whole, name)
        assert (found is None) == (not told)
        assert found is None or min(told) <= found <= max(told)


@given(st.lists(rounds, min_size=1, max_size=5), targets)
def test_a_server_beside_itself_is_as_fast(played: list[Round], limits: Targets) -> None:
    each = [figures(one, limits) for one in played]
    for ratio in ratios(each, each).values():
        assert (ratio.low, ratio.median, ratio.high) == (1, 1, 1)


def test_ratios_are_of_rounds_side_by_side() -> None:
    def first_after(*times: float) -> list[Round]:
        return [Round((reply([time, time + 1], 2),), (), 1.0) for time in times]

    ours, theirs = (
        [figures(one, Targets()) for one in side]
        # a machine that slows down by ten between the rounds
        for side in (first_after(1.0, 10.0, 12.0), first_after(2.0, 20.0, 16.0))
    )
    ratio = ratios(ours, theirs)["ttft_p50_s"]
    assert ratio.median == pytest.approx(0.5)
    assert ratio.high == pytest.approx(0.75)
    assert "cached_share" not in ratios(ours, theirs)
