"""Constraints are compiled beside the steps, and nobody else waits for them."""

import threading
import time

import pytest

from models.chat import Constraint, ConstraintKind, Sampling
from models.errors import RequestInvalid
from runtimes.compiling import Compiled, Compiling
from runtimes.constraints import ConstraintCompiler, TokenMask
from runtimes.messages import Guide, Submit, Vocab

VOCAB = Vocab((b"a", b"b", b""), frozenset({2}), frozenset({2}), -1, 2, "", "", False)


class Slow(ConstraintCompiler):
    """Takes until it is let go for what is called slow."""

    def __init__(self) -> None:
        super().__init__(VOCAB)
        self.go = threading.Event()
        self.compiled: list[str] = []

    def compile(self, constraint: Constraint) -> TokenMask:
        self.compiled.append(constraint.source)
        if constraint.source == "slow":
            assert self.go.wait(20)
        if constraint.source == "bad":
            raise RequestInvalid("no such shape", "grammar")
        return super().compile(Constraint(ConstraintKind.REGEX, "a*"))


def order(job: int, source: str) -> Submit:
    constraint = Constraint(ConstraintKind.REGEX, source)
    return Submit(job, (1,), Sampling(), 4, None, Guide(constraint), False)


def wait_for(made: Compiling, count: int) -> list[Compiled]:
    got: list[Compiled] = []
    end = time.monotonic() + 20
    while len(got) < count and time.monotonic() < end:
        got += made.take(0.01)
    return got


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_a_request_comes_back_with_its_mask(slow: Slow) -> None:
    made = Compiling(slow)
    made.add(order(1, "quick"))
    assert len(made) == 1
    (done,) = wait_for(made, 1)
    assert (done.order.id, done.refusal) == (1, None)
    assert isinstance(done.mask, TokenMask)
    assert len(made) == 0


def test_one_that_cannot_be_enforced_comes_back_with_why(slow: Slow) -> None:
    made = Compiling(slow)
    made.add(order(1, "bad"))
    (done,) = wait_for(made, 1)
    assert done.refusal is not None
    assert done.refusal.param == "grammar"


def test_a_slow_one_does_not_hold_up_a_quick_one(slow: Slow) -> None:
    made = Compiling(slow)
    made.add(order(1, "slow"))
    made.add(order(2, "quick"))
    assert [done.order.id for done in wait_for(made, 1)] == [2]
    slow.go.set()
    assert [done.order.id for done in wait_for(made, 1)] == [1]


def test_one_that_was_cancelled_never_comes_back(slow: Slow) -> None:
    made = Compiling(slow)
    for job in (1, 2, 3):
        made.add(order(job, "slow"))
    assert made.cancel(1)
    assert made.cancel(3)
    assert not made.cancel(9)
    slow.go.set()
    assert [done.order.id for done in wait_for(made, 1)] == [2]
    assert not list(made.take(0.05))
    assert slow.compiled.count("slow") == 2  # the third was still waiting
