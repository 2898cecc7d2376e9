"""Whose turn it is: interactive before batch, deeper cached first, and nobody for ever last."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from runtimes.jobs import Job
from runtimes.messages import Priority
from runtimes.waiting import Queue
from tests.runtimes.ledger import job


class Time:
    """Seconds that pass when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def ids(jobs: list[Job]) -> list[int]:
    return [each.id for each in jobs]


def waiting(*jobs: Job) -> tuple[Queue, Time]:
    time = Time()
    queue = Queue(time)
    for each in jobs:
        queue.add(each)
        time.now += 0.001
    return queue, time


def batch(job_id: int) -> Job:
    made = job(job_id, [1])
    made.priority = Priority.BATCH
    return made


def test_interactive_comes_before_batch_however_much_of_it_is_cached() -> None:
    queue, _ = waiting(batch(0), job(1, [1]), batch(2), job(3, [1]))
    depths = [500, 0, 600, 0]
    assert ids(queue.order(lambda j: depths[j.id])) == [1, 3, 2, 0]


def test_the_deeper_cached_comes_first_then_the_one_that_came_first() -> None:
    queue, _ = waiting(*(job(i, [1]) for i in range(4)))
    depths = [0, 300, 20, 300]
    assert ids(queue.order(lambda j: depths[j.id])) == [1, 3, 2, 0]


def test_a_burst_is_ordered_by_depth_to_its_end() -> None:
    """All of it waits equally: that nobody had to wait before makes none of them impatient."""
    queue, time = waiting(*(job(i, [1]) for i in range(6)))
    for expected in (5, 4, 3, 2, 1, 0):
        first = queue.order(lambda j: j.id)[0]
        assert first.id == expected
        queue.admitted(first)
        time.now += 10


def test_one_that_lost_its_memory_is_next_once_it_has_begun_to_answer() -> None:
    queue, _ = waiting(job(0, [1]), job(1, [1]))
    begun = job(2, [1])
    begun.generated = 1
    queue.put_back(begun)
    assert queue.order(lambda j: 100 - j.id)[0].id == 2


def test_the_queue_counts_who_is_in_it() -> None:
    queue, _ = waiting(job(0, [1]), job(1, [1]))
    first, second = list(queue)
    queue.remove(first)
    assert (len(queue), list(queue)) == (1, [second])
    queue.admitted(second)
    assert len(queue) == 0


# ---------------------------------------------------------------------- nobody waits for ever


@dataclass
class Server:
    """Places that each take a request for some ticks; waits by job id."""

    places: int
    ticks: int
    cached: Callable[[Job], int]
    waits: dict[int, float] = field(default_factory=dict[int, float])

    def __post_init__(self) -> None:
        self.time = Time()
        self.queue = Queue(self.time)
        self.until: list[float] = []

    def come(self, one: Job) -> None:
        self.queue.add(one)

    def tick(self) -> None:
        self.until = [end for end in self.until if end > self.time.now]
        for one in self.queue.order(self.cached):
            if len(self.until) == self.places:
                break
            self.queue.admitted(one)
            self.until.append(self.time.now + self.ticks)
            self.waits[one.id] = self.time.now - one.submitted_at
        self.time.now += 1

    def mean(self) -> float:
        return sum(self.waits.values()) / len(self.waits)


@pytest.mark.parametrize("backlog", [1, 2, 3, 5, 10, 30])
@pytest.mark.parametrize("ticks", [1, 5])
@pytest.mark.parametrize("places", [1, 4])
def test_an_uncached_request_among_cached_ones_waits_four_times_the_mean_at_most(
    backlog: int, ticks: int, places: int
) -> None:
    """There are always `backlog` cached requests waiting; as soon as one starts, another comes."""
    server = Server(places, ticks, lambda j: 0 if j.id in (10_000, 10_001) else 900)
    number = 0
    for now in range(400 * ticks):
        while len(server.queue) < backlog + (10_000 in ids(list(server.queue))):
            server.come(job(number, [1]))
            number += 1
        if now in (100 * ticks, 200 * ticks):
            server.come(job(10_000 + (now > 100 * ticks), [1]))
        server.tick()
    for late in (10_000, 10_001):
        assert late in server.waits, "it waits for ever"
        assert server.waits[late] <= 4 * max(server.mean(), ticks)


def test_one_who_waits_where_nobody_else_has_to_is_not_passed_for_ever() -> None:
    """Each place that becomes free is taken by a cached request that comes that very moment."""
    server = Server(1, 1, lambda j: 0 if j.id == 10_000 else 900)
    server.come(job(10_000, [1]))
    server.come(job(0, [1]))
    for number in range(1, 50):
        server.tick()
        server.come(job(number, [1]))
    assert server.waits[10_000] <= 4


def test_a_steady_stream_of_interactive_requests_does_not_hold_batch_up_for_ever() -> None:
    server = Server(1, 1, lambda _: 0)
    server.come(batch(10_000))
    for number in range(200):
        server.come(job(number, [1]))
        if number < 4:
            server.come(job(1000 + number, [1]))
        server.tick()
    assert server.waits[10_000] <= 4 * server.mean()
