"""Which tokens go into the next step, and which sequence continues which.

Strategy only: the tree says what is in memory, the executor moves sequences, the engine runs steps.
Running streams come first, then the prompts being read, up to a budget. A request whose prefix is
being read right now for another waits for it instead of computing it again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from models.chat import Priority
from runtimes.base import Cut, Executor, Handle
from runtimes.blocks import BlockStore
from runtimes.jobs import Job, JobState
from runtimes.placement import MIN_SHARED, Placement
from runtimes.radix import RadixTree, common_prefix
from runtimes.residents import Residents
from runtimes.stash import Stash
from runtimes.waiting import Queue

# A prompt is read before those that come when so many times its own length was read, batch later.
STRETCH = {Priority.INTERACTIVE: 2, Priority.BATCH: 16}
# Tokens that a constraint leaves no choice about go through the model so many at a time.
MAX_FORCED = 32


@dataclass(frozen=True, slots=True)
class Work:
    """A job's part of a step: its next `count` known tokens, and guessed ones (`draft`) to be
    verified after them."""

    job: Job
    count: int
    draft: tuple[int, ...] = ()

    @property
    def outputs(self) -> int:
        """How many rows of logits it asks for."""
        return self.count if self.job.scoring else self.drawing

    @property
    def drawing(self) -> int:
        """The last so many of them are there to draw from."""
        return (1 + len(self.draft)) if self.count == self.job.pending else 0


class Scheduler:
    """Owns the queue, the running jobs and the idle sequences of one cache, and moves memory
    between it and the `store`. With a `grid` above 1, prompts are read in chunks that end at its
    multiples, whatever the budget, and are continued from there only: the same prompt is then
    always computed in the same pieces."""

    def __init__(
        self,
        executor: Executor,
        parallel: int,
        clock: Callable[[], float],
        grid: int = 1,
        store: BlockStore | None = None,
    ) -> None:
        self.tree = RadixTree()
        self.waiting = Queue(clock)
        self.running: list[Job] = []
        self.preemptions = 0
        self.stash = Stash(executor, self.tree, store) if store is not None else None
        self.residents = Residents(executor, self.tree, self.stash, clock)
        self.places = Placement(executor, self.tree, self.residents, store, grid)
        self._x, self._caps = executor, executor.caps
        self._parallel = parallel
        self._grid = grid
        self._clock = clock
        self._read = 0

    # ------------------------------------------------------------------ accounting

    @property
    def cells_used(self) -> int:
        """Cells in use: the tree's tokens and what running answers have added since."""
        return self.places.cells_used(self.running)

    @property
    def restoring(self) -> list[Job]:
        """Jobs that wait for memory from another tier."""
        return [job for job in self.running if job.restoring is not None]

    def arrived(self) -> bool:
        """Whether some of it is here."""
        fetches = [job.restoring.fetch for job in self.running if job.restoring is not None]
        return any(fetch.ready for fetch in fetches)

    def restore(self, seconds: float) -> list[Job]:
        """Take what has arrived of it into the cache, for about so long. Returns the jobs that have
        all they waited for."""
        until = self._clock() + seconds
        settled: list[Job] = []
        for job in self.restoring:
            if self.places.restore(job, self.running, lambda: self._clock() >= until):
                settled.append(job)
            if self._clock() >= until:
                break
        return settled

    # ------------------------------------------------------------------ coming and going

    def submit(self, job: Job) -> None:
        """Put a request in the queue."""
        self.waiting.add(job)

    def find(self, job_id: int) -> Job | None:
        """The job of this id, if it has not ended."""
        return next((j for j in (*self.running, *self.waiting) if j.id == job_id), None)

    def finish(self, job: Job) -> None:
        """The job is over: its sequence stays, as a leaf others can continue."""
        if job.state is JobState.WAITING:
            self.waiting.remove(job)
        else:
            self.running.remove(job)
        unusable = job.restoring is not None and self._caps.checkpoints
        job.state, job.restoring = JobState.ENDED, None
        handle, job.handle = job.handle, None
        if handle is None:
            return
        if unusable:  # attention memory without the state that belongs to it
            self.residents.close(handle)
            return
        self.places.record(job, handle, job.computed)
        self.places.keep_state(handle, job.known[: job.computed])
        covered = self._caps.cut is Cut.ANY and self.tree.private(handle) == 0
        if covered or self.tree.length(handle) == 0:
            self.residents.close(handle)  # others hold all of it
        else:
            self.residents.add(handle)

    def admit(self) -> list[Job]:
        """Move waiting jobs that can start into `running`; each continues the best prefix there
        is. Returns those that can compute at once."""
        admitted: list[Job] = []
        if not self.waiting or len(self.running) >= self._parallel:
            return admitted
        for job in self.waiting.order(lambda j: self.places.live(j).length):
            if len(self.running) >= self._parallel:
                break
            if self._awaits_prefix(job):
                continue
            if not self.places.start(job, self.running):
                break
            job.admitted_at = job.admitted_at or self._clock()
            self.running.append(job)
            self.waiting.admitted(job)
            if job.restoring is None:
                admitted.append(job)
        return admitted

    # ------------------------------------------------------------------ the next step

    def plan(self, budget: int) -> tuple[Work, ...]:
        """Rows for the next step: one for each running stream, then up to `budget` prompt tokens.

        Prompts are read by the time they are due, which is later the longer they are: short ones
        pass long ones, but only so many, however many come."""
        able = [job for job in self.running if job.restoring is None]
        writing = [job for job in able if job.pending == 1 or job.state is JobState.DECODE]
        works = [Work(job, min(job.pending, MAX_FORCED)) for job in writing]
        room = min(budget, self._caps.max_rows - sum(work.count for work in works))
        outputs = self._caps.max_outputs - len(works)
        reading = sorted((j for j in able if j not in writing), key=self._due)
        for job in reading:
            count = self._chunk(job, room, outputs)
            if count <= 0 or outputs <= 0:
                break
            works.append(Work(job, count))
            room -= count
            outputs -= max(1, works[-1].outputs)
        return tuple(works)

    def advance(self, work: Work, right: int = 0) -> None:
        """The executor has computed `work`; of its draft the first `right` tokens were right, and
        the others are taken back."""
        job = work.job
        job.computed += work.count + right
        assert job.handle is not None
        if right < len(work.draft):
            taken_back = self._x.cut(job.handle, job.computed)
            assert taken_back, "only where memory can be cut are there drafts"
        if job.state is JobState.PREFILL:
            self._read += work.count
            self.places.record(job, job.handle, min(job.computed, job.prompt_length))
            if job.computed in job.checkpoints:
                self.places.keep_state(job.handle, job.known[: job.computed])
            if job.pending == 0:
                job.state = JobState.DECODE
                if self.stash is not None:
                    self.stash.want(job.handle, whole=False)

    def relieve(self) -> Job | None:
        """Make room after the cells ran out: evict an idle sequence, else send a job back to the
        queue, batch before interactive, the youngest first, and return it. What it had computed
        goes to the store. Raises MemoryError when there is nothing left to give up."""
        if self.residents.evict(None):
            return None
        if len(self.running) < 2:
            raise MemoryError("one request alone does not fit the KV cache")
        job = max(self.running, key=lambda j: (j.priority is Priority.BATCH, j.admitted_at, j.id))
        self.running.remove(job)
        assert job.handle is not None
        if job.restoring is None:
            self.places.record(job, job.handle, job.computed)
            self.places.keep_state(job.handle, job.known[: job.computed])
            if self.stash is not None:
                self.stash.flush(job.handle)
        self.residents.close(job.handle)
        job.back_to_queue()
        self.waiting.put_back(job)
        self.preemptions += 1
        return job

    def relax(self) -> bool:
        """Let an idle sequence leave the live cache where it slows running requests down; whether
        one went."""
        return self.residents.relax(sum(job.computed for job in self.running))

    # ------------------------------------------------------------------ inside

    def _due(self, job: Job) -> int:
        """When a prompt should be read, on a clock of prompt tokens."""
        if job.due is None:
            job.due = self._read + STRETCH[job.priority] * job.pending
        return job.due

    def _chunk(self, job: Job, room: int, outputs: int) -> int:
        if self._grid > 1:  # each runs by itself there, so that only its own outputs matter
            grid = min(self._grid, self._caps.max_outputs) if job.scoring else self._grid
            count = min(job.pending, grid - job.computed % grid)
            return count if count <= room else 0
        count = min(job.pending, room, outputs if job.scoring else room)
        stop = job.next_stop()
        return min(count, stop - job.computed) if stop is not None else count

    def _awaits_prefix(self, job: Job) -> bool:
        """Whether a running job is about to compute more of this prompt than there is already."""
        if not self._caps.forks or job.alternatives is not None:
            return False
        have = self.places.live(job).length
        for other in self.running:
            if other.state is not JobState.PREFILL:
                continue
            shared = min(common_prefix(other.prompt, job.known), len(job.known) - 1)
            if shared >= max(have, other.computed) + MIN_SHARED:
                if self._caps.cut is not Cut.ANY:
                    other.stops.add(shared)  # memory that cannot be cut must be forked right there
                return True
        return False

    def check(self, open_handles: Sequence[Handle]) -> None:
        """Assert that nothing leaks; for tests and idle moments."""
        self.tree.check()
        kept = [*self.residents.idle, *self.residents.parked]
        mine = [*kept, *(j.handle for j in self.running if j.handle is not None)]
        assert sorted(mine) == sorted(open_handles)
        assert all((h in self.tree) != (h in self.residents.parked) for h in mine)
        for job in self.running:
            assert job.handle is not None
            held = self.tree.tokens(job.handle)
            assert np.array_equal(held, job.known[: len(held)])
