"""Finished requests' sequences, kept for whoever continues them: in the live cache, or parked
beside it.

Every step reads the live cache up to its highest used cell, so idle sequences leave it while others
write: near the device where the executor can park, else to the block store.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from runtimes.base import Executor, Handle
from runtimes.radix import RadixTree, Tokens, common_prefix
from runtimes.stash import Stash

# Idle sequences may also hold this share of the busy cells, where that is more.
IDLE_SHARE = 0.25
# A parked sequence is brought back when it holds so many tokens more than the live ones, and one
# more for so many of its own, which have to be moved.
_MIN_GAIN = 16
_TOKENS_MOVED = 128
# Pieces of an evicted sequence that are still copied where copying is slow.
LAST_PIECES = 4


@dataclass(slots=True)
class _Parked:
    tokens: Tokens
    last_used: float


class Residents:
    """See the module."""

    def __init__(
        self, executor: Executor, tree: RadixTree, stash: Stash | None, clock: Callable[[], float]
    ) -> None:
        self.evictions = 0
        self._x, self._tree, self._stash, self._clock = executor, tree, stash, clock
        self._idle: dict[Handle, float] = {}
        self._parked: dict[Handle, _Parked] = {}
        self._uses: dict[Handle, int] = {}
        # Those that the store has no room for, until they are used again.
        self._unkept: set[Handle] = set()

    def __contains__(self, handle: Handle) -> bool:
        return handle in self._idle

    @property
    def idle(self) -> list[Handle]:
        """Those in the live cache."""
        return list(self._idle)

    @property
    def parked(self) -> list[Handle]:
        """Those beside it."""
        return list(self._parked)

    @property
    def parked_cells(self) -> int:
        return sum(len(p.tokens) for p in self._parked.values())

    @property
    def count(self) -> int:
        """All of them; each takes one of the executor's handles."""
        return len(self._idle) + len(self._parked)

    # ------------------------------------------------------------------ coming and going

    def add(self, handle: Handle) -> None:
        """A request has ended; its sequence stays."""
        self._idle[handle] = self._clock()
        if self._stash is not None:
            self._stash.want(handle, whole=True)

    def use(self, handle: Handle) -> None:
        """Somebody continues an idle sequence."""
        self._idle[handle] = self._clock()
        self._uses[handle] = self._uses.get(handle, 0) + 1

    def take(self, handle: Handle) -> None:
        """The sequence is a request's again."""
        del self._idle[handle]
        self._unkept.discard(handle)

    def close(self, handle: Handle) -> None:
        """Forget a sequence that is in the live cache."""
        if self._stash is not None:
            self._stash.forget(handle)
        self._x.close(handle)
        self._tree.remove(handle)
        self._uses.pop(handle, None)
        self._unkept.discard(handle)

    # ------------------------------------------------------------------ making room

    def evict(self, keep: Handle | None) -> bool:
        """Close the idle sequence least worth keeping: unused for long, seldom continued. What it
        holds goes to the store first."""
        victim = self._least_worth({keep})
        if victim is None:
            return False
        del self._idle[victim]
        if self._stash is not None:
            # what a GPU has not given back by now is not worth making others wait for
            self._stash.flush(victim, LAST_PIECES if self._x.caps.park_cells else None)
        self.close(victim)
        self.evictions += 1
        return True

    def put_away(self, keep: Handle | None) -> bool:
        """Close the idle sequence least worth keeping whose memory the store holds then: nobody
        needs its room, so nothing may be lost for it."""
        if self._stash is None:
            return False
        while (victim := self._least_worth({keep, *self._unkept})) is not None:
            self._stash.flush(victim)
            if self._stash.keeps(victim):
                del self._idle[victim]
                self.close(victim)
                self.evictions += 1
                return True
            self._unkept.add(victim)
        return False

    def give_up(self, keep: Handle | None) -> bool:
        """Close a sequence for its handle, parked or not: the one that was unused for longest."""
        parked = min((p.last_used for p in self._parked.values()), default=None)
        victim = self._least_worth({keep})
        if parked is None or (victim is not None and self._idle[victim] < parked):
            return self.evict(keep)
        return self.drop_parked()

    def drop_parked(self) -> bool:
        """Close the parked sequence that was unused for longest."""
        if not self._parked:
            return False
        victim = min(self._parked, key=lambda h: self._parked[h].last_used)
        del self._parked[victim]
        self._x.close(victim)
        self._uses.pop(victim, None)
        return True

    def _least_worth(self, keep: Collection[Handle | None]) -> Handle | None:
        now = self._clock()
        ages = {
            h: (now - used) / (1 + self._uses.get(h, 0))
            for h, used in self._idle.items()
            if h not in keep
        }
        return max(ages, key=lambda h: (ages[h], -h)) if ages else None

    def relax(self, busy_cells: int) -> bool:
        """Move one idle sequence out of the live cache, if they slow the steps of others. Returns
        whether one went."""
        if self._stash is None and not self._x.caps.park_cells:
            return False
        limit = max(self._x.caps.idle_cells, busy_cells * IDLE_SHARE)
        if sum(self._tree.length(h) for h in self._idle) <= limit:
            return False  # the cheaper question first
        if sum(self._tree.private(h) for h in self._idle) <= limit:
            return False
        if self._x.caps.park_cells:
            return self._park_one()
        return bool(self._x.caps.piece) and self.put_away(None)

    def rest(self) -> bool:
        """Nobody runs: move one idle sequence out of the way of whoever comes next, if it comes
        back as fast as if it had stayed. Returns whether one went."""
        return bool(self._x.caps.park_cells) and self._park_one()

    def _park_one(self) -> bool:
        """Park the sequence least worth keeping, of those for which it pays."""
        short: set[Handle | None] = {
            h for h in self._idle if self._tree.private(h) < self._x.caps.park_least
        }
        victim = self._least_worth(short)
        return victim is not None and self._park(victim)

    def _park(self, handle: Handle) -> bool:
        tokens, room = self._tree.tokens(handle), self._x.caps.park_cells
        if len(tokens) > room:
            return False
        while self.parked_cells + len(tokens) > room and self.drop_parked():
            pass
        if not self._x.park(handle):
            return False
        if self._stash is not None:
            self._stash.forget(handle)
        self._parked[handle] = _Parked(tokens, self._idle.pop(handle))
        self._tree.remove(handle)
        return True

    # ------------------------------------------------------------------ coming back

    def bring_back(self, tokens: Tokens, live: int, make_room: Callable[[int], bool]) -> None:
        """Unpark the sequence that shares most with `tokens`, if that is more than the `live` cache
        does. `make_room` frees so many cells."""
        best, most = None, 0.0
        for handle, parked in self._parked.items():
            gain = common_prefix(parked.tokens, tokens) - live
            worth = gain - _MIN_GAIN - len(parked.tokens) / _TOKENS_MOVED
            if worth > most:
                best, most = handle, worth
        if best is None or not make_room(len(self._parked[best].tokens)):
            return
        if not self._x.unpark(best):
            return
        parked = self._parked.pop(best)
        self._tree.open(best)
        for overlap in self._tree.extend(best, parked.tokens):
            if self._x.caps.shares_prefix:
                self._x.share(overlap.owner, best, overlap.start, overlap.end)
        self._idle[best] = self._clock()
        if self._stash is not None:
            self._stash.want(best, whole=True)
