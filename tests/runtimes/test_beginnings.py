"""What a request begins with when memory comes from other tiers, one case at a time."""

import numpy as np

from runtimes.base import Cut
from runtimes.blocks import BlockStore
from runtimes.jobs import Job, JobState
from runtimes.kvfiles import Kind
from runtimes.scheduler import Scheduler
from tests.runtimes.ledger import Clock, Ledger, job, ledger, row


class World:
    """A scheduler over an executor of lists and a host tier."""

    def __init__(self, executor: Ledger, host_bytes: int = 1 << 20) -> None:
        self.x = executor
        self.store = BlockStore("a ledger", host_bytes)
        self.made = Scheduler(executor, 4, Clock(), store=self.store)
        self.jobs = 0

    def submit(self, prompt: list[int], tokens: int = 1, *checkpoints: int) -> Job:
        self.jobs += 1
        one = job(self.jobs, prompt, tokens, frozenset(checkpoints))
        self.made.submit(one)
        return one

    def step(self) -> None:
        for one in self.made.admit() + self.made.restore(1e9):
            if one.pending == 0:
                assert one.kept_logits is not None
                self._take(one)
        works = self.made.plan(512)
        self.x.step([row(work.job, work.count) for work in works], lambda _: None)
        for work in works:
            self.made.advance(work)
            if work.job.pending == 0:
                if not work.job.generated:
                    assert work.job.handle is not None
                    self.made.tree.mark(work.job.handle, np.zeros(1, np.float32))
                self._take(work.job)
        self.made.check(list(self.x.held))

    def _take(self, one: Job) -> None:
        one.append(5000 + one.id)
        if one.generated >= one.max_tokens:
            self.made.finish(one)

    def run(self, prompt: list[int], tokens: int = 1, *checkpoints: int) -> Job:
        one = self.submit(prompt, tokens, *checkpoints)
        for _ in range(tokens + 5):
            if one.state is JobState.ENDED:
                return one
            self.step()
        raise AssertionError("it does not end")

    def forget_live(self) -> None:
        while self.made.residents.evict(None):
            pass
        assert not self.x.held


BASE = list(range(100))


def test_what_was_evicted_comes_back_and_one_token_is_computed() -> None:
    world = World(ledger(piece=64))
    world.run([*range(600)])
    world.forget_live()
    assert world.run([*range(600)]).cached == 599


def test_of_a_block_with_another_end_only_the_pieces_of_the_prefix_are_loaded() -> None:
    world = World(ledger(piece=16, cells=140))
    world.run(BASE)
    world.forget_live()
    again = world.submit([*BASE[:40], 7, 7, 7])
    world.made.admit()
    world.made.restore(1e9)
    assert (again.cached, again.computed) == (40, 40)
    assert again.handle is not None
    assert world.x.held[again.handle] == BASE[:40]
    assert next(world.x._new) == 100 + 48  # cells ever taken: three pieces of sixteen


def test_a_block_refused_halfway_leaves_what_came_before_it() -> None:
    world = World(ledger(piece=16, cells=130))
    world.run(BASE)
    other = world.submit([*range(9000, 9085)], 4)
    world.forget_live()
    world.step()
    assert other.state is JobState.DECODE
    again = world.submit(BASE)
    world.made.places.start(again, [])  # as if there were room
    world.made.running.append(again)
    world.made.waiting.remove(again)
    world.made.restore(1e9)
    assert again.handle is not None
    assert (again.computed, world.x.held[again.handle]) == (32, BASE[:32])
    assert again.restoring is None


def test_where_there_is_no_room_for_a_blocks_other_end_nothing_of_it_is_used() -> None:
    world = World(ledger(piece=64, cells=130))
    world.run(BASE)
    world.submit([*range(9000, 9055)], 8)
    world.forget_live()
    world.step()
    again = world.submit([*BASE[:40], 7, 7, 7], 2)
    world.made.places.start(again, [])  # as if there were room for all 100 tokens of the block
    world.made.running.append(again)
    world.made.waiting.remove(again)
    world.made.restore(1e9)
    assert again.handle is not None
    assert (again.computed, world.x.held[again.handle]) == (40, BASE[:40])
    world.step()
    assert world.x.held[again.handle] == [*BASE[:40], 7, 7, 7]


def test_a_payload_that_is_none_is_forgotten_and_its_tokens_are_computed() -> None:
    world = World(ledger(piece=64))
    world.run(BASE)
    world.forget_live()
    shelf = world.store._host[Kind.BLOCK]
    (key,) = shelf._payloads
    for spoilt in (b"", b"\xff" * 40, shelf._payloads[key][:-1], shelf._payloads[key] + b"x"):
        shelf._payloads[key] = spoilt
        again = world.run(BASE)
        assert again.cached == 0
        world.forget_live()
        assert world.run(BASE).cached == 99  # and kept anew
        world.forget_live()


def test_a_state_restored_at_a_prompts_very_end_answers_from_the_kept_logits() -> None:
    world = World(ledger(Cut.NONE, piece=64, checkpoints=True))
    world.run(BASE)
    first = world.submit([*BASE, 1], 9)
    world.step()  # the sequence that ended there is another's now
    second = world.submit([*BASE, 2], 9)
    world.step()
    world.step()
    again = world.run(BASE)
    assert (again.cached, again.state) == (100, JobState.ENDED)
    assert (first.cached, second.cached) == (100, 100)


def test_a_window_that_the_live_sequence_has_lost_comes_from_a_checkpoint() -> None:
    world = World(ledger(Cut.WINDOW, piece=64, checkpoints=True))
    world.run(BASE, 60, 99)  # the answer is longer than the window
    again = world.run([*BASE[:99], 7, 7], 1)
    assert again.cached == 99


def test_without_a_checkpoint_all_is_read_again() -> None:
    world = World(ledger(Cut.WINDOW, piece=64, checkpoints=True))
    world.run(BASE, 60)
    assert world.run([*BASE[:99], 7, 7], 1).cached == 0


def test_attention_memory_whose_state_is_lost_is_not_used() -> None:
    world = World(ledger(Cut.NONE, piece=64, checkpoints=True))
    world.run(BASE, 1, 99)
    world.forget_live()
    for key in list(world.store._host[Kind.CHECKPOINT]._payloads):
        world.store._host[Kind.CHECKPOINT].remove(key)
    again = world.run(BASE, 1, 99)
    assert again.cached == 0
    world.forget_live()
    assert world.run(BASE).cached == 99


def test_what_the_store_has_no_room_for_stays_where_it_is() -> None:
    """Idle sequences would leave for the sake of speed alone, and be lost."""
    world = World(ledger(dense=True, piece=64), host_bytes=0)
    first, second = list(range(300)), list(range(1000, 1300))
    for prompt in (first, second):
        world.run(prompt)
    assert [world.run(prompt).cached for prompt in (first, second)] == [300, 300]


def test_what_the_store_holds_leaves_for_a_request_that_runs_alone() -> None:
    world = World(ledger(dense=True, piece=64))
    world.run(list(range(300)))
    world.run(list(range(1000, 1300)))
    assert len(world.x.held) == 1
