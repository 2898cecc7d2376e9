"""What a step of so many rows costs, from the steps there have been.

The curve decides whether drafts pay, and it differs more than a guess could bridge: on a GPU 16
rows cost hardly more than one, on two CPU cores ten times as much.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from statistics import median

# Steps are told apart by width up to 4 rows, and in ever wider classes above.
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# A class keeps its newest samples and says their median; one step in ten may be held up by others.
_SAMPLES = 9
# Fewer samples are doubted: the class says the least of them, since what delays a step only adds.
_SURE = 3
# A class unseen for this many steps is forgotten, so that it is tried again: contexts grow, and
# machines get busy and quiet. A doubted one sooner, since a single slow step must not close a width
# for long.
_MEMORY = 512
_DOUBTED_MEMORY = 64
# Above the widest known class a row costs as much as between the last two, but never less than this
# part of the average row so far: what looked flat up to 3 rows is tried at 8 next, not at 32.
_LEAST_SLOPE = 0.1
# The same where only one class is known. Low enough that a promising draft is tried once.
_FIRST_SLOPE = 0.25
# At a width nobody has seen, costs are hoped to rise by this part of what the line through its
# neighbours says. So whatever might be best is tried once, and a curve with bends is found out.
_HOPE = 0.75


@dataclass(slots=True)
class _Class:
    """Steps of about the same width."""

    rows: deque[int] = field(default_factory=lambda: deque[int](maxlen=_SAMPLES))
    seconds: deque[float] = field(default_factory=lambda: deque[float](maxlen=_SAMPLES))
    seen: int = 0
    knot: "_Knot | None" = None

    @property
    def sure(self) -> bool:
        return len(self.seconds) >= _SURE

    def forgotten(self, now: int) -> bool:
        return now - self.seen > (_MEMORY if self.sure else _DOUBTED_MEMORY)


@dataclass(frozen=True, slots=True)
class _Knot:
    """A point of the curve, and how many samples stand behind it."""

    rows: float
    seconds: float
    weight: int


class VerifyCost:
    """Knows no clock: it is told how long steps took, and counts time in steps."""

    def __init__(self) -> None:
        self._classes = [_Class() for _ in _WIDTHS]
        self._steps = 0
        self._knots: list[_Knot] = []
        self._asked: dict[int, float] = {}  # every running answer asks for the same widths

    def observe(self, rows: int, seconds: float) -> None:
        """A step of `rows` rows, no prompt among them, took `seconds`."""
        if not 0 < rows <= _WIDTHS[-1]:
            return
        self._steps += 1
        seen = self._classes[bisect_left(_WIDTHS, rows)]
        if seen.sure and seen.forgotten(self._steps):
            seen.rows.clear()
            seen.seconds.clear()
        seen.rows.append(rows)
        seen.seconds.append(seconds)
        seen.seen = self._steps
        seen.knot = _knot(seen)
        live = (c.knot for c in self._classes if not c.forgotten(self._steps))
        self._knots = _rising([knot for knot in live if knot is not None])
        self._asked.clear()

    def stale(self, rows: int) -> bool:
        """Whether steps of this width should be run and measured before anything is compared with
        them."""
        known = self._classes[min(bisect_left(_WIDTHS, rows), len(_WIDTHS) - 1)]
        return not known.sure or known.forgotten(self._steps)

    def seconds(self, rows: int) -> float:
        """What a step of `rows` rows is expected to take. Never falls with more rows."""
        known = self._asked.get(rows)
        if known is None:
            known = self._asked[rows] = self._curve(rows)
        return known

    def _curve(self, rows: int) -> float:
        if not self._knots:
            return 1.0 + _FIRST_SLOPE * (rows - 1)  # nothing is known: a unit, and a shape
        place = min(bisect_left(_WIDTHS, rows), len(_WIDTHS) - 1)
        if self._live(place):
            return self._line(rows, 1.0)
        hoped = self._line(rows, _HOPE)
        # The last width of a known class may lie above what is hoped of the first unknown one.
        known_before = place > 0 and self._live(place - 1)
        return max(hoped, self._line(_WIDTHS[place - 1], 1.0)) if known_before else hoped

    def _line(self, rows: int, part: float) -> float:
        """The curve through the knots, with only this `part` of each rise from knot to knot."""
        knots = self._knots
        at = bisect_left(knots, rows, key=_rows)
        if at == 0:
            return knots[0].seconds
        below = knots[at - 1]
        if at < len(knots):
            slope = _slope(below, knots[at])
        elif at == 1:
            slope = _FIRST_SLOPE * below.seconds / below.rows
        else:
            least = _LEAST_SLOPE * below.seconds / below.rows
            slope = max(least, _slope(knots[at - 2], below))
        return below.seconds + part * slope * (rows - below.rows)

    def _live(self, place: int) -> bool:
        known = self._classes[place]
        return known.knot is not None and not known.forgotten(self._steps)


def _rows(knot: _Knot) -> float:
    return knot.rows


def _slope(a: _Knot, b: _Knot) -> float:
    return (b.seconds - a.seconds) / (b.rows - a.rows)


def _knot(of: _Class) -> _Knot:
    seconds = median(of.seconds) if of.sure else min(of.seconds)
    return _Knot(sum(of.rows) / len(of.rows), seconds, len(of.rows))


def _rising(knots: list[_Knot]) -> list[_Knot]:
    """The nearest curve that never falls: where a wider step was measured cheaper, both get their
    mean (isotonic regression, by pooling neighbours)."""
    pools: list[list[_Knot]] = []
    level: list[float] = []
    for knot in knots:
        pools.append([knot])
        level.append(knot.seconds)
        while len(pools) > 1 and level[-2] > level[-1]:
            pools[-2:] = [pools[-2] + pools[-1]]
            weight = sum(k.weight for k in pools[-1])
            level[-2:] = [sum(k.seconds * k.weight for k in pools[-1]) / weight]
    return [
        _Knot(knot.rows, seconds, knot.weight)
        for pool, seconds in zip(pools, level, strict=True)
        for knot in pool
    ]
