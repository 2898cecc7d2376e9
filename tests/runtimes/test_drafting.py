"""Drafts are as long as they pay, and hardly ever a loss."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest

from runtimes.drafting import (
    LONGEST,
    Draft,
    Drafting,
    DraftPolicy,
    Planned,
    Proposal,
    best_draft,
)
from runtimes.lookup import PromptLookup
from runtimes.radix import Tokens
from runtimes.verify_cost import VerifyCost

# Milliseconds of a step by its rows: two CPU cores, and a GPU.
CPU = {1: 18.8, 2: 32.5, 4: 49.8, 8: 87.0, 16: 196.0, 32: 363.0}
GPU = {1: 5.0, 8: 5.1, 32: 5.5}
ALONE = Planned(1, 1.0)


def ids(tokens: Sequence[int]) -> Tokens:
    return np.array(tokens, np.int32)


def ms(curve: dict[int, float], rows: int) -> float:
    return float(np.interp(rows, list(curve), list(curve.values())))


@dataclass
class Known:
    """A curve that is known from the start."""

    curve: dict[int, float]

    def stale(self, rows: int) -> bool:
        return False

    def seconds(self, rows: int) -> float:
        return ms(self.curve, rows)


# ---------------------------------------------------------------------- how long


def settled(acceptance: float, grade: int = 0) -> DraftPolicy:
    """A policy that has seen drafts of 4 accepted at this rate per token."""
    policy = DraftPolicy((0.7,) * (grade + 1))
    rng = random.Random(1)
    for _ in range(100):
        accepted = 0
        while accepted < 4 and rng.random() < acceptance:
            accepted += 1
        policy.verified(4, accepted, grade)
    return policy


def assumed(acceptance: float) -> DraftPolicy:
    return DraftPolicy((acceptance,))


def test_where_rows_cost_nothing_drafts_are_long() -> None:
    assert assumed(0.85).length(ALONE, Known(GPU), LONGEST) >= 12
    assert assumed(0.97).length(ALONE, Known(GPU), LONGEST) == LONGEST


def test_where_rows_cost_drafts_are_short_or_none() -> None:
    assert assumed(0.85).length(ALONE, Known(CPU), LONGEST) in (3, 4, 5)
    assert assumed(0.2).length(ALONE, Known(CPU), LONGEST) == 0


def test_the_acceptance_is_learnt() -> None:
    assert settled(0.9).expected(1) == pytest.approx(0.9, abs=0.1)
    assert settled(0.2).expected(1) == pytest.approx(0.2, abs=0.15)


def test_expected_is_the_sum_over_positions() -> None:
    a = 0.8
    assert assumed(a).expected(5) == pytest.approx(a * (1 - a**5) / (1 - a))


def test_among_many_answers_drafts_must_pay_for_the_others_wait() -> None:
    alone = assumed(0.85).length(ALONE, Known(CPU), LONGEST)
    assert alone > 0
    assert assumed(0.85).length(Planned(8, 8.0), Known(CPU), LONGEST) == 0
    assert assumed(0.85).length(Planned(8, 8.0), Known(GPU), LONGEST) > 8


def test_grades_are_learnt_apart() -> None:
    policy = DraftPolicy((0.7, 0.7))
    for _ in range(10):
        policy.verified(4, 0, grade=0)
        policy.verified(4, 4, grade=1)
    assert policy.length(ALONE, Known(CPU), LONGEST, grade=0) == 0
    assert policy.length(ALONE, Known(CPU), LONGEST, grade=1) >= 4


def test_nothing_is_drafted_before_a_plain_step_was_measured() -> None:
    cost = VerifyCost()
    assert assumed(0.99).length(ALONE, cost, LONGEST) == 0
    for _ in range(3):
        cost.observe(1, 18.8)
    assert assumed(0.99).length(ALONE, cost, LONGEST) > 0


def test_without_acceptance_tries_become_rare() -> None:
    policy = assumed(0.8)
    tries: list[int] = []
    for step in range(3000):
        if length := policy.length(ALONE, Known(CPU), LONGEST):
            tries.append(step)
            policy.verified(length, 0)
    assert len(tries) <= 12
    gaps = [b - a for a, b in pairwise(tries[1:])]
    assert gaps == sorted(gaps)


def test_a_try_that_succeeds_switches_drafting_on_again() -> None:
    policy = assumed(0.8)
    while length := policy.length(ALONE, Known(CPU), LONGEST):
        policy.verified(length, 0)
    drafted: list[int] = []
    for _ in range(400):
        length = policy.length(ALONE, Known(CPU), LONGEST)
        drafted.append(length)
        policy.verified(length, length)
    assert drafted[-1] >= 4


def test_where_even_a_sure_draft_would_not_pay_nothing_is_tried() -> None:
    steep = {1: 10.0, 100: 1000.0}
    policy = assumed(0.5)
    assert not any(policy.length(ALONE, Known(steep), LONGEST) for _ in range(2000))


# ---------------------------------------------------------------------- both together


@dataclass
class Told:
    """A drafter that proposes what it was told to."""

    next: tuple[int, ...]
    free: bool = True
    assumed: tuple[float, ...] = (0.1,)
    seconds: float = 0.0
    asked: list[int] = field(default_factory=list[int])

    def propose(self, known: Tokens, most: int) -> Proposal:
        self.asked.append(most)
        return Proposal(self.next[:most])


def test_guesses_that_come_true_switch_drafting_on_without_a_row_spent() -> None:
    drafting = Drafting(Told((1, 2, 3, 4)))
    spent = 0
    for step in range(40):
        drafted = best_draft([drafting], ids([0]), ALONE, Known(CPU), 8).tokens
        if drafted:
            break
        spent += len(drafted)
        drafting.came([step % 4 + 1])
    else:
        pytest.fail("never switched on")
    assert spent == 0
    assert step <= 16


def test_drafts_that_are_right_to_the_last_token_grow_longer() -> None:
    drafting = Drafting(Told(tuple(range(16)), assumed=(0.8,)))
    lengths: list[int] = []
    for _ in range(30):
        tokens = best_draft([drafting], ids([0]), ALONE, Known(CPU), LONGEST).tokens
        lengths.append(len(tokens))
        drafting.came([*tokens, 99])  # the token after a draft comes from the same step
    assert lengths == sorted(lengths)
    assert lengths[0] < 4
    assert lengths[-1] == 7


def test_a_drafter_that_costs_is_asked_only_for_what_pays() -> None:
    drafter = Told((1, 2, 3, 4), free=False)
    drafting = Drafting(drafter)
    for _ in range(10):
        best_draft([drafting], ids([0]), ALONE, Known(CPU), 8)
        drafting.came([9])
    assert drafter.asked == []


def test_a_draft_is_no_longer_than_allowed() -> None:
    drafting = Drafting(Told((1, 2, 3, 4), assumed=(0.99,)))
    assert best_draft([drafting], ids([0]), ALONE, Known(GPU), 3).tokens == (1, 2, 3)
    assert best_draft([drafting], ids([0]), ALONE, Known(GPU), 0) == Draft()


def test_what_guessing_costs_counts() -> None:
    def drafted(seconds: float) -> int:
        drafting = Drafting(Told((1,) * 16, free=False, assumed=(0.85,), seconds=seconds))
        return len(best_draft([drafting], ids([0]), ALONE, Known(GPU), LONGEST).tokens)

    assert drafted(0.0) >= 12
    assert 2 <= drafted(0.8) <= 8  # of the curve's milliseconds
    assert drafted(5.0) == 0


def test_the_drafter_that_promises_more_is_taken() -> None:
    text = Drafting(Told((1, 2, 3, 4), assumed=(0.5,)))
    model = Drafting(Told((7, 8, 9), free=False, assumed=(0.9,)))
    assert best_draft([text, model], ids([0]), ALONE, Known(CPU), 3).tokens == (7, 8, 9)
    model = Drafting(Told((7, 8, 9), free=False, assumed=(0.9,), seconds=30.0))
    text = Drafting(Told((1, 2, 3, 4), assumed=(0.9,)))
    assert best_draft([text, model], ids([0]), ALONE, Known(CPU), 3).tokens == (1, 2, 3)


@dataclass(frozen=True)
class Run:
    ms: float
    steps: int
    drafted: int


def simulate(
    prompt: list[int], answer: list[int], curve: dict[int, float], noise: float = 0.0
) -> Run:
    """An answer written alone, where each step takes what the curve says."""
    rng = random.Random(3)
    cost, drafting = VerifyCost(), Drafting(PromptLookup())
    total, steps, drafted, done = 0.0, 0, 0, 0
    known = ids([*prompt, *answer])
    while done < len(answer):
        most = len(answer) - done - 1
        draft = best_draft([drafting], known[: len(prompt) + done], ALONE, cost, most).tokens
        right = 0
        while right < len(draft) and draft[right] == answer[done + right]:
            right += 1
        drafting.came(answer[done : done + right + 1])
        done += right + 1
        took = ms(curve, 1 + len(draft)) * (1 + noise * rng.expovariate(1.0))
        cost.observe(1 + len(draft), took)
        total, steps, drafted = total + took, steps + 1, drafted + len(draft)
    return Run(total, steps, drafted)


def noise_of(vocab: int, length: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab, length).tolist()


def prose(length: int, seed: int) -> list[int]:
    """Words by Zipf's law in pairs that recur, as in text: endings are found again, and mislead."""
    rng = np.random.default_rng(seed)
    return np.minimum(rng.zipf(1.3, length), 5000).tolist()


def edited(tokens: list[int], every: int, seed: int) -> list[int]:
    """A rewrite: the same, but for a few tokens now and then."""
    rng = random.Random(seed)
    out: list[int] = []
    at = 0
    while at < len(tokens):
        keep = rng.randint(every // 2, every * 3 // 2)
        out += tokens[at : at + keep]
        at += keep + rng.randint(0, 3)
        out += [rng.randrange(5000) for _ in range(rng.randint(0, 3))]
    return out


def plain(answer: list[int], curve: dict[int, float]) -> float:
    return len(answer) * ms(curve, 1)


@pytest.mark.parametrize("curve", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("vocab", [5, 50, 500, 50_000])
def test_random_text_is_never_much_slower(curve: dict[int, float], vocab: int) -> None:
    for seed in range(4):
        prompt, answer = noise_of(vocab, 600, seed), noise_of(vocab, 600, seed + 100)
        assert simulate(prompt, answer, curve).ms <= 1.03 * plain(answer, curve)


@pytest.mark.parametrize("curve", [CPU, GPU], ids=["cpu", "gpu"])
def test_text_with_misleading_repetition_is_never_much_slower(curve: dict[int, float]) -> None:
    for seed in range(4):
        prompt, answer = prose(1000, seed), prose(600, seed + 100)
        assert simulate(prompt, answer, curve).ms <= 1.03 * plain(answer, curve)


def test_a_rewrite_is_written_faster() -> None:
    prompt = prose(1200, 1)
    answer = edited(prompt, 40, 2)
    assert simulate(prompt, answer, CPU).ms * 1.3 <= plain(answer, CPU)
    assert simulate(prompt, answer, GPU).ms * 4 <= plain(answer, GPU)


def test_a_rewrite_is_written_faster_where_times_are_noisy() -> None:
    prompt = prose(1200, 1)
    answer = edited(prompt, 40, 2)
    quiet = sum(ms(CPU, 1) * 1.3 for _ in answer)  # the noise adds 30 % on average
    assert simulate(prompt, answer, CPU, noise=0.3).ms * 1.3 <= quiet


def test_repetition_after_a_long_stretch_of_noise_is_noticed() -> None:
    prompt, stretch = prose(800, 1), noise_of(50, 1500, 2)
    before = simulate(prompt, stretch, CPU)
    after = simulate(prompt, [*stretch, *prompt], CPU)
    assert (after.ms - before.ms) * 1.3 <= plain(prompt, CPU)
