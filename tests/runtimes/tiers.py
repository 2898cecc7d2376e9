"""A crowded little world for the scheduler: few cells, a small host tier, a real disk folder whose
reads come late, and a check after everything that happens."""

import random
from pathlib import Path

import numpy as np

from runtimes.base import CellsExhausted, Executor
from runtimes.blocks import BlockStore
from runtimes.diskcache import Deliver, DiskCache
from runtimes.jobs import Job, JobState
from runtimes.kvfiles import Entry, root_key
from runtimes.messages import DiskSpec
from runtimes.scheduler import Scheduler
from tests.runtimes.ledger import Clock, Ledger, job, row

IDENTITY = "a ledger"
LONGEST = 640


class LateDisk(DiskCache):
    """A disk that keeps its readers waiting until told otherwise."""

    def __init__(self, spec: DiskSpec, notes: list[str]) -> None:
        super().__init__(spec, root_key(IDENTITY), {"model": "ledger"}, notes.append)
        self.late: list[tuple[Entry, Deliver]] = []

    def read(self, entry: Entry, deliver: Deliver) -> None:
        self.late.append((entry, deliver))

    def let_go(self, number: int) -> None:
        """Do some of what was asked for."""
        for entry, deliver in self.late[:number]:
            super().read(entry, deliver)
        del self.late[:number]
        assert self.flush(30)


class Tiers:
    """See the module. `act` does one of the things that can happen; all of it hangs on `seed`."""

    def __init__(self, executor: Ledger, folder: Path | None, host_bytes: int, seed: int) -> None:
        self.x, self.rng = executor, random.Random(seed)
        self.notes: list[str] = []
        self.folder, self.host_bytes = folder, host_bytes
        self.said: list[list[int]] = [[]]
        self.done = self.restored = 0
        self.count = 0
        self._begin()

    def _begin(self) -> None:
        spec = DiskSpec(self.folder, 60_000, 3600) if self.folder is not None else None
        self.disk = LateDisk(spec, self.notes) if spec is not None else None
        self.store = BlockStore(IDENTITY, self.host_bytes, self.disk)
        executor: Executor = self.x
        self.made = Scheduler(executor, 3, Clock(), store=self.store)

    # ------------------------------------------------------------------ what can happen

    def act(self) -> None:
        """Something happens."""
        choice = self.rng.choice
        deeds = [self.step] * 10 + [self.submit] * 3 + [self.let_go] * 3 + [self.tidy] * 3
        deeds += [self.cancel, self.evict, self.relax, self.relax, self.rest, self.preempt]
        deeds += [self.lose_a_file, self.flip_a_file, self.flip_in_host]
        choice(deeds)()
        if self.disk is not None:
            assert self.disk.flush(30)  # so that a seed means the same again
        self.check()

    def submit(self) -> None:
        """A new prompt, a next turn, a branch, or the same again."""
        if len(self.made.waiting) > 6:
            return
        rng = self.rng
        fresh = [rng.randrange(9000, 9900) for _ in range(rng.randrange(1, 40))]
        past = rng.choice(self.said[-12:])
        family = rng.randrange(3)
        new = [family * 1000 + i for i in range(rng.choice([0, 20, 200, 256, 300, 520]))]
        part = past[: rng.randrange(len(past) + 1)]
        prompt = rng.choice([new + fresh, [*new, 1], past + fresh, part + fresh, past])
        prompt = prompt[:LONGEST] or fresh
        ends = {len(prompt) - 1, rng.randrange(len(prompt))} - {0}
        self.count += 1
        self.made.submit(job(self.count, prompt, rng.randrange(1, 12), frozenset(ends)))

    def step(self) -> None:
        """Admit, bring back, compute."""
        welcome = self.made.admit()
        welcome += self.made.restore(self.rng.choice([0, 1e9]))
        for one in welcome:
            if one.pending == 0:
                assert one.kept_logits is not None, "nothing left to compute, and no logits"
                self._take(one)
        works = self.made.plan(self.rng.choice([16, 100, 512]))
        while works:
            try:
                self.x.step([row(work.job, work.count) for work in works], lambda _: None)
            except CellsExhausted:
                works = self._make_room(works)
                continue
            for work in works:
                self.made.advance(work)
                if work.job.pending == 0:
                    if not work.job.generated:
                        assert work.job.handle is not None
                        self.made.tree.mark(work.job.handle, np.zeros(1, np.float32))
                    self._take(work.job)
            return

    def _make_room(self, works: tuple) -> tuple:
        try:
            gone = self.made.relieve()
        except MemoryError:
            for work in works:
                self._end(work.job)
            return ()
        return tuple(work for work in works if work.job is not gone)

    def _take(self, one: Job) -> None:
        one.append(self.rng.choice([5000, 5001, 5002]))
        if one.generated >= one.max_tokens:
            self._end(one)

    def _end(self, one: Job) -> None:
        self.said.append([int(t) for t in one.known])
        self.made.finish(one)
        self.done += 1

    def cancel(self) -> None:
        if jobs := [*self.made.running, *self.made.waiting]:
            self._end(self.rng.choice(jobs))

    def preempt(self) -> None:
        if len(self.made.running) > 1:
            self.made.relieve()

    def evict(self) -> None:
        self.made.residents.evict(None)

    def relax(self) -> None:
        self.made.relax()

    def rest(self) -> None:
        if not self.made.running:
            while self.made.residents.rest():
                pass
            least = self.x.caps.park_least
            fits = [h for h in self.made.residents.idle if self.made.tree.private(h) >= least]
            assert not self.x.caps.park_cells or not fits

    def tidy(self) -> None:
        stash = self.made.stash
        assert stash is not None
        if stash.pending:
            stash.work()

    def let_go(self) -> None:
        if self.disk is not None:
            self.disk.let_go(self.rng.randrange(1, 4))

    def _a_file(self) -> Path | None:
        files = sorted(self.folder.glob("*/*.kv")) if self.folder is not None else []
        return self.rng.choice(files) if files else None

    def lose_a_file(self) -> None:
        if (file := self._a_file()) is not None:
            file.unlink(missing_ok=True)

    def flip_a_file(self) -> None:
        if (file := self._a_file()) is not None:
            data = bytearray(file.read_bytes())
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            file.write_bytes(data)

    def flip_in_host(self) -> None:
        shelf = self.rng.choice(list(self.store._host.values()))
        if shelf._payloads:
            key = self.rng.choice(list(shelf._payloads))
            data = bytearray(shelf._payloads[key])
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            shelf._payloads[key] = bytes(data)

    def restart(self) -> None:
        """The process ends properly, and another begins with the same folder."""
        self.finish()
        self._begin()

    # ------------------------------------------------------------------ what must hold

    def check(self) -> None:
        """No leak, and every sequence holds exactly the tokens it is said to hold."""
        self.made.check(list(self.x.held))
        borrowed = False
        for one in self.made.running:
            assert one.handle is not None
            held = self.x.held[one.handle]
            if one.restoring is None:
                assert held == one.known[: one.computed].tolist()
                assert one.pending >= 1, "a job with nothing to do"
                assert one.state in (JobState.PREFILL, JobState.DECODE)
            borrowed = borrowed or len(held) != one.computed
        for handle in self.made.residents.idle:
            assert self.x.held[handle] == self.made.tree.tokens(handle).tolist()
        if not borrowed:
            assert self.made.cells_used == self.x.cells()
        for shelf in self.store._host.values():
            assert shelf.size == sum(map(len, shelf._payloads.values())) <= shelf._budget

    def finish(self) -> None:
        """Every request ends, in a number of steps that can be told, and nothing is left."""
        for _ in range(3000):
            if not self.made.running and not self.made.waiting:
                break
            if self.disk is not None:
                self.disk.let_go(100)
            self.step()
            self.check()
        assert not self.made.running
        assert not self.made.waiting
        while self.made.residents.evict(None) or self.made.residents.drop_parked():
            self.check()
        assert not self.x.held
        assert self.made.cells_used == self.x.cells() == 0
        stats = self.store.stats()
        self.restored += stats.restored_host + stats.restored_disk
        self.store.close()
