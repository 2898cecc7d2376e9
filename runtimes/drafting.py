"""Whether to guess a request's next tokens, and how many: several rows then verify the guess in one
step. Tokens only; who guesses is a `Drafter`, what steps cost is measured (`verify_cost.py`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runtimes.radix import Tokens

# A draft is never longer than this.
LONGEST = 16
# What an idle guess is judged by (see `Drafting`): short, so that the verdict comes soon.
SHADOW = 4

# Drafts must promise this much more than a plain step, as both sides are estimates.
_MARGIN = 1.05
# Weight of the acceptance assumed at first, and of the past, in tokens.
_PRIOR_WEIGHT = 3.0
_MEMORY = 24.0
# Steps without news after which a drafter that does not pay is tried again with one token. Doubles
# with each failure.
_FIRST_PROBE = 16
_LAST_PROBE = 512
# The acceptance hoped for when trying again; where even this would not pay, nothing is tried.
_HOPE = 0.95


@dataclass(frozen=True, slots=True)
class Proposal:
    """The tokens guessed to come next. `grade` says how much they are to be trusted, as an index
    of the drafter's `assumed`: acceptance is learnt for each grade by itself."""

    tokens: tuple[int, ...]
    grade: int = 0


class Drafter(Protocol):
    """Guesses how one sequence goes on."""

    @property
    def free(self) -> bool:
        """Whether guessing costs so little that it may be done for learning only."""
        ...

    @property
    def assumed(self) -> tuple[float, ...]:
        """Each grade's acceptance before anything is known about this sequence."""
        ...

    @property
    def seconds(self) -> float:
        """What guessing one token takes."""
        ...

    def propose(self, known: Tokens, most: int) -> Proposal:
        """Up to `most` tokens to follow `known`, which only ever grows between calls."""
        ...


class StepTimes(Protocol):
    """What a step costs by its rows."""

    def stale(self, rows: int) -> bool: ...

    def seconds(self, rows: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Planned:
    """What a step holds so far: its rows, the tokens it can be expected to bring (without drafts
    one for each running answer, too), and the seconds that guessing has taken."""

    rows: int
    tokens: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens to verify, and how many of them are expected to be accepted."""

    tokens: tuple[int, ...] = ()
    expected: float = 0.0
    seconds: float = 0.0


class _Trust:
    """How often one more drafted token was right, of those whose predecessors were; the newest
    tokens count most. Also counts the steps since this was last learnt."""

    __slots__ = ("_right", "_tried", "interval", "silent")

    def __init__(self, assumed: float) -> None:
        self._right = assumed * _PRIOR_WEIGHT
        self._tried = _PRIOR_WEIGHT
        self.silent = 0
        self.interval = _FIRST_PROBE

    @property
    def acceptance(self) -> float:
        return self._right / self._tried

    def learn(self, drafted: int, accepted: int) -> None:
        # A draft is judged up to its first wrong token; what follows that says nothing.
        tried = accepted + (accepted < drafted)
        keep = (1.0 - 1.0 / _MEMORY) ** tried
        self._right = self._right * keep + accepted
        self._tried = self._tried * keep + tried
        self.silent = 0
        if accepted == drafted:
            self.interval = _FIRST_PROBE
        elif not accepted:
            self.interval = min(2 * self.interval, _LAST_PROBE)


class DraftPolicy:
    """How long one request's drafts are: the length that brings the step's tokens fastest."""

    def __init__(self, assumed: Sequence[float] = (0.7,)) -> None:
        self._trust = [_Trust(a) for a in assumed]

    def length(
        self, planned: Planned, cost: StepTimes, most: int, grade: int = 0, each: float = 0.0
    ) -> int:
        """How many tokens to draft, up to `most`, beside what is `planned` (this request's own row
        included), where guessing takes `each` seconds a token; 0 where drafting does not pay,
        except for a rare try."""
        if most <= 0 or cost.stale(planned.rows):
            return 0
        trust = self._trust[grade]
        if best := _best_length(planned, cost, most, trust.acceptance, each):
            return best
        trust.silent += 1
        if trust.silent < trust.interval or not _best_length(planned, cost, most, _HOPE, each):
            return 0
        trust.silent = 0
        return 1

    def expected(self, length: int, grade: int = 0) -> float:
        """How many of `length` drafted tokens will be accepted, probably."""
        a = self._trust[grade].acceptance
        return sum(a**i for i in range(1, length + 1))

    def verified(self, drafted: int, accepted: int, grade: int = 0) -> None:
        """Of `drafted` tokens the first `accepted` were right."""
        if drafted > 0:
            self._trust[grade].learn(drafted, accepted)


def _best_length(
    planned: Planned, cost: StepTimes, most: int, acceptance: float, each: float
) -> int:
    best, best_rate = 0, _MARGIN * planned.tokens / (cost.seconds(planned.rows) + planned.seconds)
    tokens, chance = planned.tokens, 1.0
    for length in range(1, most + 1):
        chance *= acceptance
        tokens += chance
        guessing = planned.seconds + each * length
        rate = tokens / (cost.seconds(planned.rows + length) + guessing)
        if rate > best_rate:
            best, best_rate = length, rate
    return best


@dataclass(frozen=True, slots=True)
class Offer:
    """A draft that a drafter could give: `length` tokens, which make the step bring `rate` tokens a
    second. A free drafter has them already."""

    length: int = 0
    rate: float = 0.0
    proposal: Proposal = Proposal(())


class Drafting:
    """One request's drafts of one drafter: asks it and the policy, and tells the policy how it
    went.

    Where drafts do not pay, a free drafter goes on guessing, and the guesses are compared with the
    tokens that come anyway. So a repetition is noticed without a single row spent on it."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._policy = DraftPolicy(drafter.assumed)
        self._open = Proposal(())
        self._right = 0

    def offer(self, known: Tokens, planned: Planned, cost: StepTimes, most: int) -> Offer:
        """What could be verified in this step: up to `most` tokens to follow `known`, beside what
        is `planned`. One of `take` and `leave` follows."""
        proposal, most, each = Proposal(()), min(most, LONGEST), self._drafter.seconds
        if self._drafter.free and most > 0:
            proposal = self._drafter.propose(known, most)
            most = len(proposal.tokens)
        length = self._policy.length(planned, cost, most, proposal.grade, each)
        if not length:
            return Offer(proposal=proposal)
        tokens = planned.tokens + self._policy.expected(length, proposal.grade)
        seconds = cost.seconds(planned.rows + length) + planned.seconds + each * length
        return Offer(length, tokens / seconds, proposal)

    def take(self, known: Tokens, offer: Offer) -> Draft:
        """Draft what was offered."""
        proposal = offer.proposal
        if not self._drafter.free:
            proposal = self._drafter.propose(known, offer.length)
        self._await(proposal, offer.length)
        length = len(self._open.tokens)
        expected = self._policy.expected(length, proposal.grade)
        return Draft(self._open.tokens, expected, self._drafter.seconds * length)

    def leave(self, offer: Offer) -> None:
        """Another draft is better, or none."""
        if self._right == len(self._open.tokens):
            self._await(offer.proposal, SHADOW)

    def came(self, tokens: Sequence[int]) -> None:
        """These tokens were added to the answer, drafted or not."""
        guessed = self._open.tokens
        for token in tokens:
            if self._right == len(guessed):
                break
            if token != guessed[self._right]:
                self._close(self._right + 1)
                return
            self._right += 1
        if self._right == len(guessed):
            self._close(self._right)

    def _await(self, proposal: Proposal, length: int) -> None:
        self._open, self._right = Proposal(proposal.tokens[:length], proposal.grade), 0

    def _close(self, drafted: int) -> None:
        self._policy.verified(drafted, self._right, self._open.grade)
        self._open, self._right = Proposal(()), 0


def best_draft(
    draftings: Sequence[Drafting], known: Tokens, planned: Planned, cost: StepTimes, most: int
) -> Draft:
    """The draft of whichever drafter promises the most, or none."""
    offers = [drafting.offer(known, planned, cost, most) for drafting in draftings]
    best = max(range(len(offers)), key=lambda i: offers[i].rate)
    draft = Draft()
    for i, (drafting, offer) in enumerate(zip(draftings, offers, strict=True)):
        if i == best and offer.length:
            draft = drafting.take(known, offer)
        else:
            drafting.leave(offer)
    return draft
