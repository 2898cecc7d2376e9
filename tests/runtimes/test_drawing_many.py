"""Drawing for many requests at once: each as if it were alone, and guesses checked on the way."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from models.chat import Sampling
from models.errors import RequestInvalid
from runtimes.choosing import ThreadedChoice
from runtimes.sampling import Drawn, Run, Sampler, draw_rows, draw_run, draw_runs
from tests.runtimes.perrow import draw, kept, probabilities

FloatRows = NDArray[np.float32]

ROUTES = {
    "plain": Sampling(1.0, 0, 1.0, 0.0, seed=5),
    "warm": Sampling(1.6, 0, 1.0, 0.0, seed=5),
    "top-k": Sampling(0.8, 12, 1.0, 0.0, seed=5),
    "top-k, top-p": Sampling(0.8, 12, 0.9, 0.0, seed=5),
    "top-p": Sampling(1.3, 0, 0.8, 0.0, seed=5),
    "min-p": Sampling(1.0, 0, 1.0, 0.02, seed=5),
    "all": Sampling(1.2, 20, 0.95, 0.01, seed=5),
}


@pytest.mark.parametrize("route", ROUTES)
def test_many_rows_are_drawn_as_often_as_the_plain_way_says(route: str) -> None:
    how = ROUTES[route]
    row = (np.random.default_rng(3).standard_normal(150) * 1.5).astype(np.float32)
    n, rounds = 50, 400
    samplers = [Sampler(replace(how, seed=i), None) for i in range(n)]
    seen = np.zeros(len(row))
    for _ in range(rounds):
        drawn = draw_rows(samplers, np.tile(row, (n, 1)))
        seen += np.bincount([d.token for d in drawn], minlength=len(row))
    ids, keep = kept(row, how)
    expected = probabilities(row, how) * n * rounds
    assert seen[ids[keep:]].sum() == 0
    often = expected >= 5
    observed = np.append(seen[ids[:keep]][often], seen[ids[:keep]][~often].sum())
    wanted = np.append(expected[often], expected[~often].sum())
    observed, wanted = observed[wanted > 0], wanted[wanted > 0]
    chi_square = ((observed - wanted) ** 2 / wanted).sum()
    freedom = len(wanted) - 1
    assert chi_square < freedom + 3.3 * np.sqrt(2 * freedom) + 7  # about 99.9 %


@pytest.mark.parametrize("route", ["top-k", "top-k, top-p", "top-p", "min-p", "all"])
def test_draws_are_those_of_the_plain_way_token_by_token(route: str) -> None:
    rng = np.random.default_rng(1)
    how, plain = ROUTES[route], np.random.Generator(np.random.PCG64(5))
    sampler = Sampler(how, None)
    for _ in range(200):
        row = (rng.standard_normal(1003) * 2).astype(np.float32)
        assert sampler.draw(row.copy()).token == draw(row, how, plain)


# ---------------------------------------------------------------------- company


class Evens:
    """A mask that allows even tokens, and is complete after three."""

    active = True

    def __init__(self) -> None:
        self.taken: list[int] = []

    def apply(self, row: FloatRows) -> None:
        row[1::2] = -np.inf

    def accept(self, token: int) -> bool:
        self.taken.append(token)
        return len(self.taken) < 3

    def forced(self) -> list[int]:
        return []


def sampler_of(kind: int, seed: int) -> Sampler:
    hows = list(ROUTES.values())
    how = replace(hows[seed % len(hows)], seed=seed)
    match kind:
        case 0:
            return Sampler(replace(how, temperature=0), None)
        case 1:
            return Sampler(replace(how, repeat_penalty=1.3, logit_bias=((1, 2.0),)), None)
        case 2:
            return Sampler(replace(how, presence_penalty=1.0), 4)
        case 3:
            return Sampler(how, None, Evens())
        case 4:
            return Sampler(how, 3, Evens())
        case _:
            return Sampler(how, None)


SIZES = st.sampled_from([3, 64, 257, 1000, 2503])


@settings(deadline=None)
@given(
    kinds=st.lists(st.integers(0, 7), min_size=1, max_size=9),
    size=SIZES,
    seed=st.integers(0, 1000),
    turn=st.integers(0, 8),
)
def test_a_request_draws_the_same_alone_and_in_any_company(
    kinds: list[int], size: int, seed: int, turn: int
) -> None:
    rng = np.random.default_rng(seed)
    n = len(kinds)
    order = np.roll(np.arange(n), turn)
    alone = [sampler_of(kind, seed + i) for i, kind in enumerate(kinds)]
    together = [sampler_of(kind, seed + i) for i, kind in enumerate(kinds)]
    for _ in range(3):
        logits = (rng.standard_normal((n, size)) * 3).astype(np.float32)
        logits[:, : size // 3] = np.round(logits[:, : size // 3])
        apart = [s.draw(row.copy()) for s, row in zip(alone, logits, strict=True)]
        joint = draw_rows([together[i] for i in order], logits[order])
        assert joint == [apart[i] for i in order]


# ---------------------------------------------------------------------- guesses


def one_by_one(sampler: Sampler, logits: FloatRows, drafts: Sequence[int]) -> list[Drawn]:
    out: list[Drawn] = []
    for row, draft in zip(logits, (*drafts, -1), strict=True):
        out.append(sampler.draw(row.copy()))
        if out[-1].token != draft or out[-1].complete:
            break
    return out


@settings(deadline=None)
@given(
    kinds=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    size=SIZES,
    seed=st.integers(0, 1000),
    right=st.lists(st.integers(0, 5), min_size=4, max_size=4),
)
def test_guesses_change_nothing_but_how_many_tokens_come_at_once(
    kinds: list[int], size: int, seed: int, right: list[int]
) -> None:
    """`right` of a run's five guesses are the tokens that will be drawn."""
    rng = np.random.default_rng(seed)
    plain = [sampler_of(kind, seed + i) for i, kind in enumerate(kinds)]
    guessing = [sampler_of(kind, seed + i) for i, kind in enumerate(kinds)]
    foresight = [sampler_of(kind, seed + i) for i, kind in enumerate(kinds)]
    for _ in range(2):
        logits = (rng.standard_normal((len(kinds), 6, size)) * 3).astype(np.float32)
        runs: list[Run] = []
        expected: list[list[Drawn]] = []
        for i, known in enumerate(right[: len(kinds)]):
            will = [foresight[i].draw(row.copy()).token for row in logits[i]][:5]
            drafts = [*will[:known], *((t + 1) % size for t in will[known:])]
            runs.append(Run(guessing[i], drafts))
            expected.append(one_by_one(plain[i], logits[i], drafts))
        assert draw_runs(runs, logits.reshape(-1, size).copy()) == expected
        foresight = [sampler_of(kind, seed + i) for i, kind in enumerate(kinds)]
        for i, drawn in enumerate(expected):
            for row, _ in zip(logits[i], drawn, strict=False):
                foresight[i].draw(row.copy())


def test_right_guesses_are_taken_and_one_more_comes_for_free() -> None:
    logits = np.eye(4, 6, dtype=np.float32)
    greedy = Sampling(temperature=0)
    assert [d.token for d in draw_run(Sampler(greedy, None), logits, (0, 1, 2))] == [0, 1, 2, 3]
    assert [d.token for d in draw_run(Sampler(greedy, None), logits, (0, 5, 2))] == [0, 1]
    assert [d.token for d in draw_run(Sampler(greedy, None), logits[:1], ())] == [0]


def test_a_run_ends_with_its_constraint_and_the_mask_hears_each_token_once() -> None:
    mask = Evens()
    logits = np.zeros((6, 8), np.float32)
    logits[:, 4] = 1
    drawn = draw_run(Sampler(Sampling(temperature=0), None, mask), logits, (4, 4, 4, 4, 4))
    assert [d.token for d in drawn] == mask.taken == [4, 4, 4]
    assert [d.complete for d in drawn] == [False, False, True]


def test_a_constraint_that_cannot_be_followed_ends_its_own_request_alone() -> None:
    class Broken(Evens):
        active = True

        def accept(self, token: int) -> bool:
            raise RequestInvalid("too large", "response_format")

    def forced(self) -> list[int]:
        return []

    greedy = Sampling(temperature=0)
    logits = np.zeros((2, 4), np.float32)
    broken, other = draw_rows([Sampler(greedy, None, Broken()), Sampler(greedy, None)], logits)
    assert broken.refused is not None
    assert other == Drawn(0)


# ---------------------------------------------------------------------- broken rows


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("values", "token"),
    [((-np.inf,) * 4, 0), ((0.0, np.nan, 1.0, 0.0), 1), ((0.0, 0.0, np.inf, 0.0), 2)],
)
def test_a_row_that_is_no_distribution_gives_a_token_and_harms_no_other(
    route: str, values: tuple[float, ...], token: int
) -> None:
    logits = np.array([values, (-np.inf, -np.inf, -np.inf, 0.0)], np.float32)
    drawn = draw_rows([Sampler(ROUTES[route], None) for _ in range(2)], logits)
    assert [d.token for d in drawn] == [token, 3]


def test_several_threads_choose_what_one_does() -> None:
    threads = ThreadedChoice(3)
    rng = np.random.default_rng(3)
    for n in (1, 2, 7, 8):
        samplers = [[sampler_of(kind % 8, kind) for kind in range(n)] for _ in range(2)]
        logits = (rng.standard_normal((n, 300_000)) * 3).astype(np.float32)
        alone = draw_runs([Run(s) for s in samplers[0]], logits.copy())
        assert draw_runs([Run(s) for s in samplers[1]], logits, threads) == alone
