"""What goes into the next step, and what continues what, on an executor of plain lists."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.chat import Priority
from runtimes.base import CellsExhausted, Cut
from runtimes.jobs import Job, JobState
from runtimes.scheduler import MIN_SHARED, Scheduler
from tests.runtimes.ledger import Clock, Ledger, job, ledger, row


def scheduler(executor: Ledger, parallel: int = 4, grid: int = 1) -> Scheduler:
    return Scheduler(executor, parallel, Clock(), grid)


def run(made: Scheduler, executor: Ledger, budget: int = 512) -> None:
    """One step, with token 500 + job id for whoever has read all."""
    made.admit()
    works = made.plan(budget)
    rows = [row(work.job, work.count) for work in works]
    executor.step(rows, lambda _: None)
    for work in works:
        made.advance(work)
        if work.job.pending == 0:
            work.job.append(500 + work.job.id)
    made.check(list(executor.held))
    if executor.caps.forks:
        assert made.cells_used == executor.cells()


def finish(made: Scheduler, executor: Ledger, of: Job, tokens: int = 2) -> None:
    while of.generated < tokens:
        run(made, executor)
    made.finish(of)


SHARED = list(range(100))


def test_requests_with_a_prefix_that_is_being_read_wait_for_it_and_fork() -> None:
    executor = ledger()
    made = scheduler(executor)
    jobs = [job(i, [*SHARED, 200 + i, 300 + i]) for i in range(4)]
    for each in jobs:
        made.submit(each)
    run(made, executor, budget=64)
    assert [j.state for j in jobs] == [JobState.PREFILL] + [JobState.WAITING] * 3
    run(made, executor, budget=64)
    assert [j.state for j in jobs[1:]] == [JobState.WAITING] * 3
    run(made, executor, budget=64)
    assert [j.cached for j in jobs] == [0, 100, 100, 100]
    assert executor.cells() == 100 + 4 * 2 + 1  # the first one has begun its answer


def test_a_short_common_beginning_is_not_worth_waiting_for() -> None:
    executor = ledger()
    made = scheduler(executor)
    common = SHARED[: MIN_SHARED - 1]
    for i in range(2):
        made.submit(job(i, [*common, 200 + i, *range(300, 320)]))
    made.admit()
    assert len(made.running) == 2


def test_when_the_one_they_wait_for_is_cancelled_the_next_takes_over_from_where_it_was() -> None:
    executor = ledger()
    made = scheduler(executor)
    first, second = job(0, [*SHARED, 200]), job(1, [*SHARED, 201])
    made.submit(first)
    made.submit(second)
    run(made, executor, budget=64)
    made.finish(first)
    run(made, executor, budget=64)
    assert (second.cached, second.state) == (64, JobState.DECODE)


def test_the_next_turn_takes_the_finished_sequence_over() -> None:
    executor = ledger()
    made = scheduler(executor)
    first = job(0, SHARED)
    made.submit(first)
    finish(made, executor, first)
    second = job(1, [*SHARED, 500, 7, 8])
    made.submit(second)
    made.admit()
    assert second.cached == 101
    assert executor.forks == 0
    assert made.residents.count == 0


def test_an_edit_in_the_middle_forks_and_keeps_the_old_branch() -> None:
    executor = ledger()
    made = scheduler(executor)
    first = job(0, SHARED)
    made.submit(first)
    finish(made, executor, first)
    second = job(1, [*SHARED[:60], 900, 901])
    made.submit(second)
    made.admit()
    assert second.cached == 60
    assert (executor.forks, made.residents.count) == (1, 1)


def test_one_token_is_left_to_compute_when_all_is_cached() -> None:
    executor = ledger()
    made = scheduler(executor)
    first = job(0, SHARED)
    made.submit(first)
    finish(made, executor, first)
    again = job(1, SHARED[:50])
    made.submit(again)
    made.admit()
    assert (again.cached, again.pending) == (49, 1)


def test_memory_that_cannot_be_cut_is_forked_exactly_where_the_prefix_ends() -> None:
    executor = ledger(Cut.NONE)
    made = scheduler(executor)
    jobs = [job(i, [*SHARED, 200 + i]) for i in range(3)]
    for each in jobs:
        made.submit(each)
    run(made, executor)
    assert jobs[0].computed == 100  # the chunk ends where the others want to fork
    run(made, executor)
    assert [j.cached for j in jobs] == [0, 100, 100]


def test_short_prompts_pass_a_long_one_but_not_for_ever() -> None:
    executor = ledger()
    made = scheduler(executor)
    long = job(0, range(1000, 1300))
    made.submit(long)
    run(made, executor, budget=10)
    shorts = 0
    while not long.generated:
        if len(made.running) == 1:
            shorts += 1
            made.submit(job(shorts, [shorts] * 50))
        run(made, executor, budget=10)
        for other in [
            j for j in made.running if j is not long and not j.prompt_length > j.computed
        ]:
            made.finish(other)
    # it is due when twice its 300 tokens were read, those that came before that excepted
    assert 8 <= shorts <= 18


def test_a_batch_prompt_lets_more_pass() -> None:
    executor = ledger()
    made = scheduler(executor)
    batch, other = job(0, range(100, 150)), job(1, range(200, 500))
    batch.priority = Priority.BATCH
    for each in (batch, other):
        made.submit(each)
    made.admit()
    assert [w.job.id for w in made.plan(64)] == [1]


def test_streams_come_before_prompts_and_the_shortest_remainder_first() -> None:
    executor = ledger()
    made = scheduler(executor)
    stream, long, short = job(0, [1, 2]), job(1, range(100, 300)), job(2, range(400, 440))
    made.submit(stream)
    run(made, executor)
    made.submit(long)
    made.submit(short)
    made.admit()
    plan = made.plan(64)
    assert [(w.job.id, w.count) for w in plan] == [(0, 1), (2, 40), (1, 24)]


def test_on_a_grid_the_same_prompt_is_always_read_in_the_same_pieces() -> None:
    executor = ledger(forks=False, sequences=1)
    made = scheduler(executor, parallel=1, grid=32)
    pieces: list[list[tuple[int, int]]] = []
    for number in range(3):  # cold, warm, and after another prompt
        one = job(number, SHARED)
        made.submit(one)
        made.admit()
        read: list[tuple[int, int]] = []
        while not one.generated:
            (work,) = made.plan(64)
            read.append((one.computed, work.count))
            run(made, executor, budget=64)
        made.finish(one)
        pieces.append(read)
        if number == 1:
            other = job(9, range(200, 290))
            made.submit(other)
            finish(made, executor, other)
    assert pieces[0] == [(0, 32), (32, 32), (64, 32), (96, 4)]
    assert pieces[1] == pieces[0][-1:]  # continued where the grid allows
    assert pieces[2] == pieces[0]


def test_the_sequence_least_worth_keeping_is_evicted_first() -> None:
    executor = ledger(sequences=3)
    made = scheduler(executor, parallel=1)
    popular, old, new = (range(i, i + 20) for i in (0, 100, 200))
    for number, prompt in enumerate([popular, [*popular, 50], [*popular, 51], old, new]):
        one = job(number, list(prompt))
        made.submit(one)
        finish(made, executor, one, tokens=1)
    made.check(list(executor.held))
    assert made.tree.match(np.array(list(popular), np.int32)).length == 20
    assert made.tree.match(np.array(list(new), np.int32)).length == 20
    assert made.tree.match(np.array(list(old), np.int32)).length == 20
    assert made.residents.evictions == 1


def test_the_youngest_is_preempted_and_later_reads_its_own_answer_again() -> None:
    executor = ledger(cells=64, sequences=4)
    made = scheduler(executor)
    first, second = job(0, range(20), 30), job(1, range(100, 120), 20)
    made.submit(first)
    run(made, executor)
    made.submit(second)
    for _ in range(12):
        run(made, executor)
    assert executor.cells() == 63  # of 64, and two streams want one more each
    with pytest.raises(CellsExhausted):
        run(made, executor)
    assert made.relieve() is second
    assert second.state is JobState.WAITING
    assert second.generated > 0
    before = second.known.tolist()
    made.finish(first)
    made.admit()
    assert second.known.tolist() == before
    assert second.cached == 0


def test_a_lone_request_that_does_not_fit_is_told_so() -> None:
    executor = ledger(cells=16)
    made = scheduler(executor)
    made.submit(job(0, range(12), 100))
    made.admit()
    with pytest.raises(MemoryError):
        made.relieve()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60), st.integers(1, 6)), max_size=14),
    st.sampled_from([Cut.ANY, Cut.NONE]),
    st.integers(16, 128),
)
def test_whatever_comes_every_request_ends_and_nothing_leaks(
    asked: list[tuple[int, int, int]], cut: Cut, budget: int
) -> None:
    executor = ledger(cut, cells=300, sequences=5)
    made = scheduler(executor, parallel=3)
    for number, (start, length, tokens) in enumerate(asked):
        made.submit(job(number, [*range(start * 10), *range(700, 700 + length)], tokens))
    for _ in range(2000):
        if not made.running and not made.waiting:
            break
        try:
            run(made, executor, budget)
        except CellsExhausted:
            made.relieve()
        for one in list(made.running):
            if one.generated >= one.max_tokens:
                made.finish(one)
    assert not made.running
    assert not made.waiting
    assert made.cells_used == executor.cells() <= 300
