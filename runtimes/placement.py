"""How a request gets the memory it can reuse: a sequence of the live cache, taken over or forked,
and what other tiers bring back on top of it."""

from collections.abc import Callable, Sequence

from runtimes.base import Cut, Executor, Handle
from runtimes.blocks import BlockStore
from runtimes.jobs import Job, JobState, Restoring
from runtimes.kvfiles import Entry, Kind
from runtimes.radix import RadixTree, Tokens
from runtimes.residents import Residents
from runtimes.reuse import Finder, Source
from runtimes.stash import unpack

# Waiting for another's prefix costs a step of delay; below this many tokens it is not worth it.
MIN_SHARED = 16
# Cells kept free for an admitted request's answer; what goes beyond is preempted when it comes.
RESERVED_ANSWER = 256
# A sequence stays where it is when it makes up this share of all that is in the cache.
KEPT_SHARE = 0.6


class Placement:
    """See the module. The scheduler tells what is `running`."""

    def __init__(
        self,
        executor: Executor,
        tree: RadixTree,
        residents: Residents,
        store: BlockStore | None,
        grid: int,
    ) -> None:
        self._x, self._caps, self._tree = executor, executor.caps, tree
        self._residents, self._store, self._grid = residents, store, grid
        self._finder = Finder(self._caps, tree, store, grid)

    def cells_used(self, running: Sequence[Job]) -> int:
        """Cells in use: the tree's tokens and what running jobs have added since."""
        tails = (
            job.computed - self._tree.length(job.handle)
            for job in running
            if job.handle is not None
        )
        return self._tree.size + sum(tails)

    # ------------------------------------------------------------------ a beginning

    def start(self, job: Job, running: Sequence[Job]) -> bool:
        """Give the job a sequence. False where it must wait for room."""
        if job.alternatives is not None:
            return self._start_anew(job, running)
        self._residents.bring_back(
            job.known, self.live(job).length, lambda cells: self._make_room(cells, running)
        )
        if self._caps.dense and not running:
            self._begin_low(job)
        limit = self._limit(job)
        source = self._finder.best(job.known, limit)
        need = len(job.known) - source.live + min(job.max_tokens, RESERVED_ANSWER)
        if not self._make_room(need, running, source.handle) and running:
            return False
        handle, length = self._begin(source, running)
        if handle is None and not source.entries:
            # a window that live sequences have lost may have been kept
            source = self._finder.stored(job.known, limit, Source()) or Source()
            handle, length = self._begin(source, running)
        if handle is None:
            source, length = Source(), 0
            handle = self._fresh(running)
        if handle is None:
            return False
        job.start(handle, length)
        if source.entries and self._store is not None:
            job.restoring = Restoring(self._store.fetch(source.entries), source.length)
            job.state = JobState.PREFILL
        else:
            job.settle()
        return True

    def _start_anew(self, job: Job, running: Sequence[Job]) -> bool:
        """Reuse nothing: of what is reused there are no logits."""
        need = len(job.known) + min(job.max_tokens, RESERVED_ANSWER)
        if not self._make_room(need, running) and running:
            return False
        handle = self._fresh(running)
        if handle is None:
            return False
        job.start(handle, 0)
        job.settle()
        return True

    def _begin_low(self, job: Job) -> None:
        """Empty the cache for a request that runs alone, so that its cells are the lowest. Only
        what holds most of it anyway stays, and what the store has no room for; the rest comes back
        from there when it is asked for."""
        live = self.live(job)
        keep = live.handle if live.length >= KEPT_SHARE * self._tree.size else None
        while self._residents.put_away(keep):
            pass

    def _make_room(self, cells: int, running: Sequence[Job], keep: Handle | None = None) -> bool:
        while (free := self._caps.cells - self.cells_used(running)) < cells:
            if not self._residents.evict(keep):
                break
        return free >= cells

    def _limit(self, job: Job) -> int:
        """How much can be reused. One token is always left to compute, unless the logits at the
        prompt's end were kept."""
        kept = self._grid == 1 and job.take_kept_logits(self._tree)
        return len(job.known) if kept else len(job.known) - 1

    def live(self, job: Job) -> Source:
        """The most of the job's tokens that a live sequence can be continued from."""
        return self._finder.live(job.known, len(job.known) - 1)

    def _begin(self, source: Source, running: Sequence[Job]) -> tuple[Handle | None, int]:
        """A sequence holding the live part of `source`, and how much that is: the sequence itself
        where it is idle and would be continued whole, else a fork, or the sequence cut where there
        are no forks."""
        if source.handle is None:
            return self._fresh(running), 0
        if idle := source.handle in self._residents:
            self._residents.use(source.handle)
        if source.entries and self._caps.checkpoints:
            return self._borrow(source.handle, source.live, running), 0
        if idle and source.live == self._tree.length(source.handle):
            self._residents.take(source.handle)
            return source.handle, source.live
        if not self._caps.forks:
            return (self._cut_to(source.handle, source.live) if idle else None), source.live
        if not self._spare_handle(running, keep=source.handle):
            return None, 0
        handle = self._x.fork(source.handle, source.live)
        if handle is not None:
            self._tree.fork(source.handle, handle, source.live)
        return handle, source.live

    def _borrow(self, source: Handle, length: int, running: Sequence[Job]) -> Handle | None:
        """A sequence with another's attention memory, which others cannot use before its state has
        come: the tree is told when it has."""
        if not self._spare_handle(running, keep=source):
            return None
        handle = self._x.borrow(source, length)
        if handle is not None:
            self._tree.open(handle)
        return handle

    def _cut_to(self, source: Handle, length: int) -> Handle | None:
        if not self._x.cut(source, length):
            return None
        self._tree.cut(source, length)
        self._residents.take(source)
        return source

    def _fresh(self, running: Sequence[Job]) -> Handle | None:
        if not self._spare_handle(running):
            return None
        handle = self._x.open()
        self._tree.open(handle)
        return handle

    def _spare_handle(self, running: Sequence[Job], keep: Handle | None = None) -> bool:
        in_use = self._residents.count + sum(j.handle is not None for j in running)
        if in_use < self._caps.max_sequences:
            return True
        return self._residents.give_up(keep)

    # ------------------------------------------------------------------ memory on its way

    def restore(self, job: Job, running: Sequence[Job], enough: Callable[[], bool]) -> bool:
        """Take what has arrived for a job into the cache, until `enough`. True when it has all it
        waited for, or will not get the rest."""
        while job.restoring is not None and job.restoring.fetch.ready:
            entry, payload = job.restoring.fetch.take()
            good = payload is not None and self._put_back(job, entry, payload, running)
            if not good or job.restoring.fetch.done:
                self._settle(job, whole=good)
                return True
            if enough():
                return False
        return False

    def _put_back(
        self, job: Job, entry: Entry, payload: bytes | memoryview, running: Sequence[Job]
    ) -> bool:
        assert job.handle is not None
        assert job.restoring is not None
        if entry.kind is Kind.CHECKPOINT:
            if not self._x.restore(job.handle, entry.end, memoryview(payload)):
                return False
            job.computed = entry.end
            return True
        at, wanted = entry.end - len(entry.tokens), job.restoring.length
        pieces = self._pieces(entry, payload)
        for tokens, piece in pieces:
            if at >= wanted:
                break  # what follows is of other tokens
            if not self._load(job, at, at + tokens, piece, running):
                return False
            at = job.computed = at + tokens
        if not pieces:
            return False
        if at > wanted and self._caps.cut is Cut.ANY:
            if not self._x.cut(job.handle, wanted):
                return False
            job.computed = wanted
        return True

    def _pieces(self, entry: Entry, payload: bytes | memoryview) -> list[tuple[int, memoryview]]:
        """What a block's payload consists of; nothing where it is not one."""
        try:
            pieces = unpack(payload)
        except ValueError:
            pieces = []
        if sum(tokens for tokens, _ in pieces) == len(entry.tokens):
            return pieces
        assert self._store is not None
        self._store.discard(entry)
        return []

    def _load(
        self, job: Job, start: int, end: int, piece: memoryview, running: Sequence[Job]
    ) -> bool:
        assert job.handle is not None
        while not self._x.load(job.handle, start, end, piece):
            if self._caps.cells - self.cells_used(running) > end - start:
                return False
            if not self._residents.evict(None):
                return False
        return True

    def _settle(self, job: Job, *, whole: bool) -> None:
        """A job has what it can get. Memory without its checkpoint, or that should have been cut,
        is good for nothing."""
        assert job.handle is not None
        assert job.restoring is not None
        beyond = job.computed > job.restoring.length
        if not whole and (self._caps.checkpoints or beyond):
            self._residents.close(job.handle)
            job.handle, job.computed = self._x.open(), 0
            self._tree.open(job.handle)
        self.record(job, job.handle, job.computed)
        job.settle()

    # ------------------------------------------------------------------ what is kept

    def keep_state(self, handle: Handle, tokens: Tokens) -> None:
        """Keep what memory knows at the sequence's end and cannot be cut."""
        if self._store is None or not self._caps.checkpoints or len(tokens) < MIN_SHARED:
            return
        if self._store.checkpoint_key(tokens) in self._store:
            return
        state = self._x.checkpoint(handle)
        if state is not None:
            self._store.add_checkpoint(tokens, bytes(state))

    def record(self, job: Job, handle: Handle, upto: int) -> None:
        """Enter what the sequence now holds into the tree, up to position `upto`; where another
        holds the same tokens, use its cells instead of our own."""
        start = self._tree.length(handle)
        if upto <= start:
            return
        for overlap in self._tree.extend(handle, job.known[start:upto]):
            if self._caps.shares_prefix:
                self._x.share(overlap.owner, handle, overlap.start, overlap.end)
