"""One loaded model at work: schedule, run a step, take the tokens back."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.chat import FinishReason
from runtimes.base import CellsExhausted, EngineStats, Executor, Row
from runtimes.blocks import BlockStore, StoreStats
from runtimes.choosing import Choose, choose
from runtimes.compiling import Compiling
from runtimes.constraints import ConstraintCompiler
from runtimes.cost import DutyCycle, StepCost
from runtimes.draft_model import DraftModel
from runtimes.harvest import Harvest, until_the_end
from runtimes.jobs import Job, JobState
from runtimes.messages import (
    JobEnd,
    NewToken,
    PrefillProgress,
    Rejected,
    StepDone,
    Submit,
    Vocab,
)
from runtimes.news import News
from runtimes.sampling import Drawn, Mask, Sampler
from runtimes.scheduler import Scheduler, Work
from runtimes.speculation import Speculation

# Memory from another tier goes into the cache for so long between two steps; where there is nothing
# else to do, the engine waits so long for it to arrive. Seconds.
RESTORE_S = 0.05
WAIT_S = 0.02
# Idle sequences leave the live cache for so long between two steps: while answers are written, and
# where only prompts are read. Seconds.
RELAX_S = 0.01
RELAX_AT_START_S = 0.05
# That, and copying to the store, take each at most this share of the time while requests run: a
# sequence whose cells lie scattered among others' takes a GPU 100 ms to move.
MOVE_SHARE = 0.04

# Checkpoints of a prompt: each so many tokens, and before so many of its last messages.
CHECKPOINT_EVERY = 2048
CHECKPOINT_MESSAGES = 3

# In the quiet room prompts are read in chunks of this many tokens, which costs no speed.
QUIET_GRID = 128


@dataclass(frozen=True, slots=True)
class Room:
    """A cache and the schedule of who uses it."""

    executor: Executor
    scheduler: Scheduler


class Engine:
    """Runs on the thread that loaded the model. `context` bounds a prompt and its answer.

    Requests share one room, and each step of it. Those whose arithmetic must repeat go to a quiet
    one, opened by `open_quiet` for the first of them: there each has a cache and steps of its own.
    Where it cannot be opened they share, too. `token_seconds` is what a prompt's token costs, as
    far as that is known."""

    def __init__(
        self,
        executor: Executor,
        vocab: Vocab,
        parallel: int,
        context: int,
        open_quiet: Callable[[], Executor | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        store: BlockStore | None = None,
        drafts: bool = True,
        draft_model: DraftModel | None = None,
        token_seconds: float | None = None,
        encode: Callable[[str], Sequence[int]] | None = None,
        choose: Choose = choose,
    ) -> None:
        self.shared = Room(executor, Scheduler(executor, parallel, clock, store=store))
        self.quiet: Room | None = None
        self._open_quiet: Callable[[], Executor | None] | None = open_quiet
        self._vocab, self._choose = vocab, choose
        self._context = context
        self._clock = clock
        self._store = store
        self._cost = StepCost(executor.caps.max_rows, token_seconds)
        self._speculation = Speculation(executor.caps, draft_model, wanted=drafts)
        self._copying = DutyCycle(MOVE_SHARE)
        self._parting = DutyCycle(MOVE_SHARE)
        self._constraints = ConstraintCompiler(vocab, encode)
        self._compiling = Compiling(self._constraints)
        self._counts: Counter[str] = Counter()
        self._news = News()
        self._rested = True

    # ------------------------------------------------------------------ requests

    def submit(self, order: Submit) -> None:
        """Queue a request."""
        if order.guide is not None:
            self._compiling.add(order)
        else:
            self._queue(order, None)

    def _queue_compiled(self, wait_s: float = 0.0) -> None:
        """Queue the requests whose constraint is ready by now."""
        for done in self._compiling.take(wait_s):
            if (error := done.refusal) is not None:
                rejected = Rejected(done.order.id, error.message, error.param)
                self._news.rejected.append(rejected)
            else:
                self._queue(done.order, done.mask)

    def _queue(self, order: Submit, mask: Mask | None) -> None:
        sampling = order.sampling
        if sampling.seed is None:
            sampling = replace(sampling, seed=random.getrandbits(63))
        self._rested = False
        prompt = np.array(order.tokens, np.int32)
        job = Job(
            id=order.id,
            prompt=prompt,
            max_tokens=min(order.max_tokens, self._context - len(prompt)),
            sampler=Sampler(sampling, order.logprobs, mask),
            priority=order.priority,
            checkpoints=self._checkpoints(order) if self._store is not None else frozenset(),
            alternatives=order.prompt_logprobs,
        )
        self._count(requests=1, prompt_tokens=len(prompt))
        self._room_for(order).scheduler.submit(job)

    def _checkpoints(self, order: Submit) -> frozenset[int]:
        """Where memory that cannot be cut is kept: before the last messages, now and then in a long
        prompt, and one token before its end, so that the same prompt can be asked again."""
        if not self.shared.executor.caps.checkpoints:
            return frozenset()
        end = len(order.tokens) - 1
        regular = range(CHECKPOINT_EVERY, end, CHECKPOINT_EVERY)
        return frozenset({*order.boundaries[-CHECKPOINT_MESSAGES:], *regular, end} - {0})

    def cancel(self, job_id: int) -> None:
        """Stop a request; what it computed stays reusable. Unknown ids have ended already."""
        found = self._compiling.cancel(job_id)
        for room in self._rooms():
            if (job := room.scheduler.find(job_id)) is not None:
                room.scheduler.finish(job)
                found = True
        if found:
            self._count(cancelled=1)
            self._news.cancelled = True

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do or to tell."""
        return not (self._busy or len(self._compiling) or self._news.rejected)

    @property
    def _busy(self) -> bool:
        return any(room.scheduler.running or room.scheduler.waiting for room in self._rooms())

    def _rooms(self) -> tuple[Room, ...]:
        return (self.shared, self.quiet) if self.quiet is not None else (self.shared,)

    def _room_for(self, order: Submit) -> Room:
        if not order.exact:
            return self.shared
        if self._open_quiet is not None:
            executor = self._open_quiet()
            self._open_quiet = None
            if executor is not None:
                places = executor.caps.max_sequences
                scheduler = Scheduler(executor, places, self._clock, QUIET_GRID)
                self.quiet = Room(executor, scheduler)
        return self.quiet or self.shared

    def use_leisure(self) -> None:
        """Do what a request would otherwise wait for, while there is none."""
        self._constraints.prepare()

    @property
    def untidy(self) -> bool:
        """Whether there is something to `tidy`."""
        stash = self.shared.scheduler.stash
        return not self._rested or (stash is not None and stash.pending)

    def tidy(self) -> bool:
        """A piece of what can wait until there is no request; whether there was one."""
        if self.put_away():
            return True
        if self._rested:
            return False
        self._rested = not self.shared.scheduler.residents.rest()
        return True

    def put_away(self) -> bool:
        """Copy a piece of what the store does not hold yet; whether there was one."""
        stash = self.shared.scheduler.stash
        if stash is None or not stash.pending:
            return False
        stash.work()
        return True

    # ------------------------------------------------------------------ the loop's heart

    def admit(self) -> StepDone | None:
        """Start what can start. Returns the news of that, so that they need not wait for the
        step."""
        self._queue_compiled(0.0 if self._busy else WAIT_S)
        for room in self._rooms():
            for job in room.scheduler.admit():
                self._welcome(room, job)
            for job in room.scheduler.restore(RESTORE_S) if self._store is not None else ():
                self._welcome(room, job)
        return self._report() if self._news.urgent else None

    def step(self) -> StepDone:
        """Plan, run, take back."""
        streams = [
            job
            for room in self._rooms()
            for job in room.scheduler.running
            if job.state is JobState.DECODE
        ]
        self._move_memory(writing=bool(streams))
        schedule = self.shared.scheduler
        if works := schedule.plan(self._cost.budget(len(streams))):
            free = self.shared.executor.caps.cells - schedule.cells_used
            self._run(self.shared, self._speculation.extend(works, free))
        elif schedule.restoring and self._store is not None and not streams:
            self._store.wait(WAIT_S, schedule.arrived)
        if self.quiet is not None:
            for work in self.quiet.scheduler.plan(QUIET_GRID):
                self._run(self.quiet, (work,))
        return self._report()

    def _move_memory(self, *, writing: bool) -> None:
        """Between steps: idle sequences out of the way of the busy ones, and copies to the store;
        little at a time while answers are written."""
        schedule = self.shared.scheduler
        started = self._clock()
        if not writing or self._parting.due(started):
            limit = RELAX_S if writing else RELAX_AT_START_S
            while schedule.running and schedule.relax() and self._clock() - started < limit:
                pass
            self._parting.took(started, self._clock())
        started = self._clock()
        if self._copying.due(started) and self.put_away():
            self._copying.took(started, self._clock())

    def _welcome(self, room: Room, job: Job) -> None:
        self._count(cached_tokens=job.cached if not job.generated else 0)
        self._news.prefill.append(PrefillProgress(job.id, job.computed, job.cached))
        if job.pending == 0 and job.kept_logits is not None:
            self._take(room, job, job.sampler.draw(job.kept_logits.copy()))
            self._take_forced(room, job)

    def _run(self, room: Room, works: Sequence[Work]) -> None:
        """One forward; where cells run out, make room and try again with whoever is left."""
        while works:
            harvest = Harvest(works, self._choose)
            started = self._clock()
            try:
                room.executor.step([_row(work) for work in works], harvest.pick)
            except CellsExhausted:
                works = self._make_room(room, works)
                continue
            self._account(room, works, self._clock() - started)
            self._news.scored += harvest.scored
            for work in works:
                self._take_back(room, work, harvest)
            return

    def _make_room(self, room: Room, works: Sequence[Work]) -> Sequence[Work]:
        if any(work.draft for work in works):
            return [replace(work, draft=()) for work in works]
        try:
            preempted = room.scheduler.relieve()
        except MemoryError:
            for work in works:
                self._end(room, work.job, FinishReason.LENGTH)
            return ()
        return [w for w in works if w.job is not preempted]

    def _take_back(self, room: Room, work: Work, harvest: Harvest) -> None:
        job = work.job
        reading = job.state is JobState.PREFILL
        drawn = until_the_end(job, harvest.drawn.get(job.id, ()), self._vocab.end_ids)
        right = max(0, len(drawn) - 1)
        room.scheduler.advance(work, right)
        if work.draft:
            self._count(drafted=len(work.draft), drafts_accepted=right)
        if reading:
            done = min(job.computed, job.prompt_length)
            self._news.prefill.append(PrefillProgress(job.id, done, job.cached))
        if (logits := harvest.kept.get(job.id)) is not None and job.handle is not None:
            room.scheduler.tree.mark(job.handle, logits)
        self._speculation.came(job, [one.token for one in drawn])
        for one in drawn:
            self._take(room, job, one)
        self._take_forced(room, job)

    def _take(self, room: Room, job: Job, drawn: Drawn) -> None:
        """A job has its next token."""
        job.append(drawn.token)
        self._news.tokens.append(NewToken(job.id, drawn.token, drawn.logprob, drawn.top))
        if (error := drawn.refused) is not None:
            self._news.rejected.append(Rejected(job.id, error.message, error.param))
            room.scheduler.finish(job)
        elif drawn.token in self._vocab.end_ids or drawn.complete:
            self._end(room, job, FinishReason.STOP)
        elif job.generated >= job.max_tokens:
            self._end(room, job, FinishReason.LENGTH)

    def _take_forced(self, room: Room, job: Job) -> None:
        """The tokens that a job's constraint leaves no choice about follow without a step each."""
        if job.state is not JobState.DECODE or job.pending != 1:
            return
        for token in job.sampler.forced():
            if job in room.scheduler.running:  # else one of them was its last
                self._count(forced=1)
                self._take(room, job, Drawn(token))

    def _end(self, room: Room, job: Job, reason: FinishReason) -> None:
        self._news.ended.append(JobEnd(job.id, reason, job.cached))
        room.scheduler.finish(job)

    # ------------------------------------------------------------------ figures

    def _account(self, room: Room, works: Sequence[Work], seconds: float) -> None:
        prompt = sum(min(w.count, max(0, w.job.prompt_length - w.job.computed)) for w in works)
        total = sum(w.count for w in works)
        self._cost.observe(prompt, seconds)
        if room is self.shared:
            self._speculation.observe(works, seconds)
        self._count(steps=1, prompt_rows=prompt, decode_rows=total - prompt)

    def _count(self, **more: int) -> None:
        """Add to counters of `EngineStats`."""
        self._counts.update(more)

    def stats(self) -> EngineStats:
        """Counters, and the present state."""
        schedules = [room.scheduler for room in self._rooms()]
        kept = self._store.stats() if self._store is not None else StoreStats()
        return EngineStats(
            **self._counts,
            restored_host=kept.restored_host,
            restored_disk=kept.restored_disk,
            cells_parked=self.shared.scheduler.residents.parked_cells,
            host_bytes=kept.host_bytes,
            stored=kept.known_entries,
            evictions=sum(s.residents.evictions for s in schedules),
            preemptions=sum(s.preemptions for s in schedules),
            running=sum(len(s.running) for s in schedules),
            waiting=sum(len(s.waiting) for s in schedules),
            cells=sum(room.executor.caps.cells for room in self._rooms()),
            cells_used=sum(s.cells_used for s in schedules),
            sequences_idle=sum(s.residents.count for s in schedules),
        )

    def _report(self) -> StepDone:
        news, self._news = self._news, News()
        return news.report(self.stats())


def _row(work: Work) -> Row:
    job = work.job
    assert job.handle is not None
    end = job.computed + work.count
    tokens = job.known[job.computed : end]
    if work.draft:
        tokens = np.concatenate([tokens, np.array(work.draft, np.int32)])
    return Row(job.handle, tokens, job.computed, work.outputs)
