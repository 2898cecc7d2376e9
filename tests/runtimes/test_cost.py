"""How much of a prompt goes into a step: so much that a running stream waits 150 ms for it."""

from runtimes.cost import CANCEL_TARGET, MIN_CHUNK, STALL_TARGET, DutyCycle, StepCost


def test_the_first_chunk_is_what_the_load_measured() -> None:
    assert StepCost(512, 0.001).budget(streams=1) == round(STALL_TARGET / 0.001)
    assert StepCost(512, 0.01).budget(streams=0) == round(CANCEL_TARGET / 0.01)


def test_without_a_measurement_it_is_a_cautious_one() -> None:
    assert StepCost(512).budget(streams=0) == 128


def test_a_stream_shortens_chunks_and_nothing_goes_beyond_a_step() -> None:
    cost = StepCost(512, 0.0005)
    assert cost.budget(streams=0) == 512
    assert cost.budget(streams=3) == 300


def test_chunks_are_never_narrower_than_the_kernels_like() -> None:
    assert StepCost(512, 1.0).budget(streams=1) == MIN_CHUNK


def test_the_cost_is_learnt_from_the_steps() -> None:
    cost = StepCost(512, 0.0001)
    for _ in range(20):
        cost.observe(200, 0.4)  # the context has grown, the machine is busy
    assert abs(cost.budget(streams=1) - STALL_TARGET / 0.002) <= 1


def test_a_few_tokens_say_nothing_of_a_tokens_cost() -> None:
    cost = StepCost(512, 0.001)
    cost.observe(1, 1.0)
    assert cost.budget(streams=1) == 150


def test_a_duty_cycle_takes_its_share_of_the_time() -> None:
    duty, now, worked = DutyCycle(0.1), 0.0, 0.0
    while now < 100.0:
        if duty.due(now):
            duty.took(now, now + 0.5)
            now, worked = now + 0.5, worked + 0.5
        now += 0.01
    assert 9.0 <= worked <= 10.5
