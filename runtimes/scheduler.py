"""Which tokens go into the next step, and which sequence continues which.

Strategy only: the tree says what is in memory, the executor moves sequences, the engine runs steps.
Running streams come first, then the prompts being read, up to a budget. A request whose prefix is
being read right now for another waits for it instead of computing it again.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runtimes.base import Cut, Executor, Handle
from runtimes.jobs import Job, JobState
from runtimes.radix import Match, RadixTree, common_prefix

# Waiting for another's prefix costs a step of delay; below this many tokens it is not worth it.
MIN_SHARED = 16
# Cells kept free for an admitted request's answer; what goes beyond is preempted when it comes.
RESERVED_ANSWER = 256


@dataclass(frozen=True, slots=True)
class Work:
    """A job's part of a step: its next `count` known tokens."""

    job: Job
    count: int


@dataclass(slots=True)
class _Idle:
    """A finished request's sequence, kept for whoever continues it."""

    last_used: float


class Scheduler:
    """Owns the queue, the running jobs and the idle sequences of one cache. With a `grid` above 1,
    prompts are read in chunks that end at its multiples, whatever the budget, and are continued
    from there only: the same prompt is then always computed in the same pieces."""

    def __init__(
        self, executor: Executor, parallel: int, clock: Callable[[], float], grid: int = 1
    ) -> None:
        self.tree = RadixTree()
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.evictions = 0
        self.preemptions = 0
        self._x = executor
        self._caps = executor.caps
        self._parallel = parallel
        self._grid = grid
        self._clock = clock
        self._idle: dict[Handle, _Idle] = {}
        self._uses: dict[Handle, int] = {}

    # ------------------------------------------------------------------ accounting

    @property
    def idle(self) -> int:
        """How many finished sequences are kept."""
        return len(self._idle)

    @property
    def cells_used(self) -> int:
        """Cells in use: the tree's tokens and what running answers have added since."""
        return self.tree.size + sum(self._private_tail(job) for job in self.running)

    def _private_tail(self, job: Job) -> int:
        return job.computed - self.tree.length(job.handle) if job.handle is not None else 0

    # ------------------------------------------------------------------ coming and going

    def submit(self, job: Job) -> None:
        """Put a request at the end of the queue."""
        self.waiting.append(job)

    def find(self, job_id: int) -> Job | None:
        """The job of this id, if it has not ended."""
        return next((j for j in (*self.running, *self.waiting) if j.id == job_id), None)

    def finish(self, job: Job) -> None:
        """The job is over: its sequence stays, as a leaf others can continue."""
        if job.state is JobState.WAITING:
            self.waiting.remove(job)
        else:
            self.running.remove(job)
        job.state = JobState.ENDED
        handle, job.handle = job.handle, None
        if handle is None:
            return
        self._record(job, handle, job.computed)
        covered = self._caps.cut is Cut.ANY and self.tree.private(handle) == 0
        if covered or self.tree.length(handle) == 0:
            self._close(handle)  # others hold all of it
        else:
            self._idle[handle] = _Idle(self._clock())

    def admit(self) -> list[Job]:
        """Move waiting jobs that can start into `running`; each continues the best prefix there
        is."""
        admitted: list[Job] = []
        held_back: list[Job] = []
        while self.waiting and len(self.running) < self._parallel:
            job = self.waiting.popleft()
            if self._awaits_prefix(job):
                held_back.append(job)
                continue
            if not self._start(job):
                held_back.append(job)
                break
            admitted.append(job)
        self.waiting.extendleft(reversed(held_back))
        return admitted

    # ------------------------------------------------------------------ the next step

    def plan(self, budget: int) -> tuple[Work, ...]:
        """Rows for the next step: one for each running stream, then up to `budget` prompt tokens,
        shortest remainder first."""
        works = [Work(job, 1) for job in self.running if job.pending == 1]
        room = min(budget, self._caps.max_rows - len(works))
        outputs = self._caps.max_outputs - len(works)
        reading = sorted((j for j in self.running if j.pending > 1), key=lambda j: j.pending)
        for job in reading:
            count = self._chunk(job, room)
            if count <= 0 or outputs <= 0:
                break
            works.append(Work(job, count))
            room -= count
            outputs -= 1
        return tuple(works)

    def advance(self, work: Work) -> None:
        """The executor has computed `work`."""
        job = work.job
        job.computed += work.count
        assert job.handle is not None
        if job.state is JobState.PREFILL:
            self._record(job, job.handle, min(job.computed, job.prompt_length))
            if job.pending == 0:
                job.state = JobState.DECODE

    def relieve(self) -> Job | None:
        """Make room after the cells ran out: evict an idle sequence, else send the youngest job
        back to the queue and return it. Raises MemoryError when there is nothing left to give
        up."""
        if self._evict(keep=None):
            return None
        if len(self.running) < 2:
            raise MemoryError("one request alone does not fit the KV cache")
        job = max(self.running, key=lambda j: (j.admitted_at, j.id))
        self.running.remove(job)
        assert job.handle is not None
        self._close(job.handle)
        job.back_to_queue()
        self.waiting.appendleft(job)
        self.preemptions += 1
        return job

    # ------------------------------------------------------------------ inside

    def _chunk(self, job: Job, room: int) -> int:
        if self._grid > 1:
            count = min(job.pending, self._grid - job.computed % self._grid)
            return count if count <= room else 0
        count = min(job.pending, room)
        stop = job.next_stop()
        return min(count, stop - job.computed) if stop is not None else count

    def _awaits_prefix(self, job: Job) -> bool:
        """Whether a running job is about to compute more of this prompt than there is already."""
        if not self._caps.forks:
            return False
        have = self._reusable(job).length
        for other in self.running:
            if other.state is not JobState.PREFILL:
                continue
            shared = min(common_prefix(other.prompt, job.known), len(job.known) - 1)
            if shared >= max(have, other.computed) + MIN_SHARED:
                if self._caps.cut is not Cut.ANY:
                    other.stops.add(shared)  # memory that cannot be cut must be forked right there
                return True
        return False

    def _start(self, job: Job) -> bool:
        """Give the job a sequence. False where it must wait for room."""
        source, length = self._best_source(job)
        need = len(job.known) - length + min(job.max_tokens, RESERVED_ANSWER)
        while self._caps.cells - self.cells_used < need and self._evict(keep=source):
            pass
        if self._caps.cells - self.cells_used < need and self.running:
            return False
        handle = self._continue(source, length)
        if handle is None:
            handle = self._fresh(keep=None)
            length = 0
        if handle is None:
            return False
        job.start(handle, length, self._clock())
        self.running.append(job)
        return True

    def _best_source(self, job: Job) -> tuple[Handle | None, int]:
        """The sequence to continue, and up to where. One token is always left to compute, unless
        the logits at the prompt's end were kept."""
        kept = self._grid == 1 and job.take_kept_logits(self.tree)
        limit = len(job.known) if kept else len(job.known) - 1
        found = self._reusable(job, limit)
        return found.handle, found.length

    def _reusable(self, job: Job, limit: int | None = None) -> Match:
        """The most of the job's tokens, up to `limit`, that some sequence can be continued from."""
        limit = len(job.known) - 1 if limit is None else limit
        if self._caps.cut is Cut.NONE:
            whole = self.tree.ends_on(job.known)
            fit = (m for m in whole if m.length <= limit and m.length % self._grid == 0)
            return next(fit, Match(0, None))
        found = self.tree.match(job.known)
        length = min(found.length, limit) // self._grid * self._grid
        return Match(length, found.handle)

    def _continue(self, source: Handle | None, length: int) -> Handle | None:
        """A sequence holding `source`'s first `length` tokens: the source itself where it is idle
        and would be continued whole, else a fork, or the source cut where there are no forks."""
        if source is None or length == 0:
            return None
        idle = self._idle.get(source)
        if idle is not None:
            idle.last_used = self._clock()
            self._uses[source] = self._uses.get(source, 0) + 1
            if length == self.tree.length(source):
                del self._idle[source]
                return source
        if not self._caps.forks:
            return self._cut_to(source, length) if idle is not None else None
        if not self._spare_handle(keep=source):
            return None
        handle = self._x.fork(source, length)
        if handle is not None:
            self.tree.fork(source, handle, length)
        return handle

    def _cut_to(self, source: Handle, length: int) -> Handle | None:
        if not self._x.cut(source, length):
            return None
        self.tree.cut(source, length)
        del self._idle[source]
        return source

    def _fresh(self, keep: Handle | None) -> Handle | None:
        if not self._spare_handle(keep):
            return None
        handle = self._x.open()
        self.tree.open(handle)
        return handle

    def _spare_handle(self, keep: Handle | None) -> bool:
        in_use = len(self._idle) + sum(j.handle is not None for j in self.running)
        return in_use < self._caps.max_sequences or self._evict(keep)

    def _record(self, job: Job, handle: Handle, upto: int) -> None:
        """Enter what the sequence now holds into the tree, up to position `upto`; where another
        holds the same tokens, use its cells instead of our own."""
        start = self.tree.length(handle)
        if upto <= start:
            return
        for overlap in self.tree.extend(handle, job.known[start:upto]):
            if self._caps.shares_prefix:
                self._x.share(overlap.owner, handle, overlap.start, overlap.end)

    def _evict(self, keep: Handle | None) -> bool:
        """Close the idle sequence that is least worth keeping: unused for long, seldom
        continued."""
        now = self._clock()
        ages = {
            h: (now - idle.last_used) / (1 + self._uses.get(h, 0))
            for h, idle in self._idle.items()
            if h != keep
        }
        if not ages:
            return False
        victim = max(ages, key=lambda h: (ages[h], -h))
        del self._idle[victim]
        self._close(victim)
        self.evictions += 1
        return True

    def _close(self, handle: Handle) -> None:
        self._x.close(handle)
        self.tree.remove(handle)
        self._uses.pop(handle, None)

    def check(self, open_handles: Sequence[Handle]) -> None:
        """Assert that nothing leaks; for tests and idle moments."""
        self.tree.check()
        mine = [*self._idle, *(j.handle for j in self.running if j.handle is not None)]
        assert sorted(mine) == sorted(open_handles)
        assert all(h in self.tree for h in mine)
        for job in self.running:
            assert job.handle is not None
            held = self.tree.tokens(job.handle)
            assert np.array_equal(held, job.known[: len(held)])
