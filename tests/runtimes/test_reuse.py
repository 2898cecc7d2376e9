"""Reuse is never wrong: whatever is forked, extended, cancelled and evicted, the logits are those
of an own context that computed the same tokens by itself."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.chat import Sampling
from runtimes.base import Cut, Executor
from runtimes.blocks import BlockStore
from runtimes.engine import Engine
from runtimes.llamacpp.model import LlamaModel, load_writer
from runtimes.messages import LoadSpec, NewToken, Submit
from tests.runtimes.recorder import (
    FloatRow,
    Recipe,
    Recorder,
    replay,
    scratch,
    tokens_of,
)
from tests.weights import Kind, write_model, write_unquantized

# Two right computations of a float32 model differ by the cache's half precision; a wrong one by
# more than one (the logits' spread is about 1).
TINY_TOLERANCE = 0.05
# The same for the real models' larger logits.
REAL_TOLERANCE = 0.5

PARALLEL = 3


def loaded(path: Path, cells: int, *, swa_full: bool) -> LlamaModel:
    spec = LoadSpec("", path, 1024, cells, PARALLEL, 2, quiet=1, swa_full=swa_full)
    return load_writer(spec, lambda _: None)


class Rig:
    """A crowded engine, and an own context beside it that computes every row again."""

    def __init__(self, path: Path, *, swa_full: bool, cells: int) -> None:
        self.crowded = loaded(path, cells, swa_full=swa_full)
        self.other = loaded(path, 2048, swa_full=swa_full)
        self.own: Executor = self.other.executor
        self.vocab = self.crowded.vocab()
        self.recorder = Recorder(self.crowded.executor, self.compare_scratch)
        self.worst = 0.0
        self.rows = 0
        self.memo: dict[tuple[int, ...], FloatRow] = {}

    def compare_scratch(self, recipe: Recipe, row: FloatRow) -> None:
        tokens = tuple(tokens_of(recipe))
        if tokens not in self.memo:
            self.memo[tokens] = scratch(self.own, tokens)
        self.note(float(np.abs(row - self.memo[tokens]).max()))

    def note(self, difference: float) -> None:
        self.worst = max(self.worst, difference)
        self.rows += 1

    def engine(self, store: BlockStore | None = None) -> Engine:
        return Engine(self.recorder, self.vocab, PARALLEL, 800, store=store)

    def clear(self, engine: Engine) -> None:
        schedule = engine.shared.scheduler
        for job in [*schedule.running, *schedule.waiting]:
            engine.cancel(job.id)
        while self.recorder.recipes:
            self.recorder.close(next(iter(self.recorder.recipes)))

    def release(self) -> None:
        self.crowded.release()
        self.other.release()


def step(engine: Engine) -> list[NewToken]:
    early = engine.admit()
    done = engine.step()
    for room in (engine.shared, engine.quiet):
        if room is not None:
            assert isinstance(room.executor, Recorder)
            room.scheduler.check(list(room.executor.recipes))
    return [*(early.tokens if early else ()), *done.tokens]


def order(job_id: int, tokens: list[int], n: int, *, exact: bool = False) -> Submit:
    return Submit(job_id, tuple(tokens), Sampling(temperature=0), n, None, None, exact)


# Kinds of memory: full attention, a window kept whole, a window as it is, recurrent, and both.
KINDS: list[tuple[Kind, bool]] = [
    ("llama", True),
    ("gemma3", True),
    ("gemma3", False),
    ("mamba", True),
    ("lfm2", True),
    ("qwen3next", True),
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda p: f"{p[0]}{'' if p[1] else '-window'}")
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    kind, swa_full = request.param
    path = write_model(tmp_path_factory.mktemp("tiny") / f"{kind}.gguf", kind)
    made = Rig(path, swa_full=swa_full, cells=512)
    yield made
    made.release()


Action = tuple[str, int, int]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["new", "extend", "again", "branch", "cancel", "step", "step", "step"]),
        st.integers(0, 1000),
        st.integers(1, 40),
    ),
    min_size=4,
    max_size=30,
)


def play(engine: Engine, actions: list[Action], *, longest: int = 240) -> None:
    """Random prompts that share much: new ones, next turns, repeats, branches in the middle."""
    said: dict[int, list[int]] = {}
    for job_id, (what, seed, size) in enumerate(actions):
        rng = np.random.default_rng(seed)
        fresh = [int(t) for t in rng.integers(0, 256, size)]
        past = said[sorted(said)[seed % len(said)]] if said else []
        prompt: list[int] | None = None
        match what:
            case "new":
                prompt = [t % 250 for t in range(longest // 4 + seed % 3 * longest // 6)] + fresh
            case "extend":
                prompt = past + fresh
            case "again":
                prompt = list(past)
            case "branch":
                prompt = past[: len(past) * (size % 4) // 4] + fresh
            case "cancel":
                engine.cancel(seed % max(1, job_id))
            case _:
                _hear(engine, said)
        if prompt and len(prompt) < longest:
            said[job_id] = prompt
            engine.submit(order(job_id, prompt, 1 + seed % 8))
    while not engine.idle:
        _hear(engine, said)


def _hear(engine: Engine, said: dict[int, list[int]]) -> None:
    for token in step(engine):
        said[token.id] = [*said[token.id], token.token]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=ACTIONS)
def test_random_interleavings_under_pressure_compute_what_an_own_context_does(
    rig: Rig, actions: list[Action]
) -> None:
    rig.recorder.check = rig.compare_scratch
    rig.worst = 0.0
    engine = rig.engine()
    play(engine, actions)
    rig.clear(engine)
    assert rig.worst < TINY_TOLERANCE


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=ACTIONS)
def test_memory_that_went_to_the_store_and_back_computes_what_an_own_context_does(
    rig: Rig, actions: list[Action]
) -> None:
    rig.recorder.check = rig.compare_scratch
    rig.worst = 0.0
    store = BlockStore("these weights", 64 << 20)
    for longest in (240, 500):
        engine = rig.engine(store)
        play(engine, actions, longest=longest)
        while engine.tidy():
            pass
        rig.clear(engine)  # the next engine finds nothing live
    assert rig.worst < TINY_TOLERANCE


def test_a_long_prompt_comes_back_from_the_store(rig: Rig) -> None:
    rig.recorder.check = rig.compare_scratch
    rig.worst = 0.0
    store = BlockStore("these weights", 64 << 20)
    prompt = [i * 7 % 251 for i in range(450)]
    computed: list[int] = []
    for job_id, tokens in enumerate([prompt, prompt, [*prompt, 9, 9, 9]]):
        engine = rig.engine(store)
        engine.submit(order(job_id, tokens, 4))
        while not engine.idle:
            step(engine)
        while engine.tidy():
            pass
        computed.append(engine.stats().prompt_rows)
        rig.clear(engine)
    # what cannot be cut is kept one token before a prompt's end
    assert computed == [450, 1, 3 if rig.recorder.caps.cut is Cut.ANY else 4]
    assert store.stats().restored_host > 0
    assert rig.worst < TINY_TOLERANCE


def test_pressure_evicts_and_preempts_and_still_computes_right(rig: Rig) -> None:
    rig.recorder.check = rig.compare_scratch
    rig.worst, engine = 0.0, rig.engine()
    for job_id in range(12):
        engine.submit(order(job_id, [job_id * 7 + i % 90 for i in range(200)], 24))
    while not engine.idle:
        step(engine)
    stats = engine.stats()
    assert stats.evictions > 0
    assert stats.requests == 12
    if rig.recorder.caps.piece:  # a state alone takes no cells, its tokens are only counted
        assert stats.cells_used <= stats.cells
    rig.clear(engine)
    assert rig.worst < TINY_TOLERANCE


def test_a_lost_beginning_would_be_noticed(rig: Rig) -> None:
    """The tolerance means something for each kind of memory, however it forgets."""
    prompt = [i * 7 % 251 for i in range(60)]
    difference = np.abs(scratch(rig.own, prompt) - scratch(rig.own, prompt[20:])).max()
    assert difference > 4 * TINY_TOLERANCE


# ---------------------------------------------------------------------- real weights


@pytest.fixture(scope="module", params=["smollm2_path", "gemma3_path"])
def real(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(request.getfixturevalue(request.param), swa_full=True, cells=1024)
    yield made
    made.release()


def conversation(rig: Rig) -> tuple[list[int], list[list[int]]]:
    text = "You are a careful assistant. " + "Keep every drawer closed and every cord blue. " * 4
    tails = ["Name a colour.", "Name a colour and a shape.", "Count to three.", "Say hello."]
    base = rig.crowded.encode(text, True, True)
    return list(base), [list(rig.crowded.encode(tail, False, True)) for tail in tails]


def test_greedy_answers_equal_those_of_an_own_context_fed_with_the_same_splits(real: Rig) -> None:
    own = real.other.quiet()
    ours = real.crowded.quiet()
    assert own is not None
    assert ours is not None
    rows: list[bool] = []

    def same(recipe: Recipe, row: FloatRow) -> None:
        rows.append(np.array_equal(row, replay(own, recipe)))

    recorder = Recorder(ours, same)
    engine = Engine(real.crowded.executor, real.vocab, PARALLEL, 256, lambda: recorder)
    base, tails = conversation(real)
    said: dict[int, list[int]] = {}
    for job_id, tail in enumerate(tails):
        said[job_id] = base + tail
        engine.submit(order(job_id, said[job_id], 8, exact=True))
        engine.submit(order(100 + job_id, said[job_id], 8))  # company
        said[100 + job_id] = []
    while not engine.idle:
        for token in _step(engine):
            said[token.id].append(token.token)
    engine.submit(order(10, [*said[0], *tails[1]], 4, exact=True))  # a next turn
    engine.submit(order(11, [*base[: len(base) // 2], *tails[2]], 4, exact=True))  # an edit
    said |= {10: [], 11: []}
    while not engine.idle:
        for token in _step(engine):
            said[token.id].append(token.token)
    while recorder.recipes:
        recorder.close(next(iter(recorder.recipes)))
    assert len(rows) > 12
    assert all(rows)


def _step(engine: Engine) -> list[NewToken]:
    early = engine.admit()
    done = engine.step()
    return [*(early.tokens if early else ()), *done.tokens]


@pytest.fixture(scope="module", params=["smollm2_path", "gemma3_path"])
def unquantized(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """The real weights in float32: quantized activations jump by a rounding when a sum is taken in
    another order, and hide a small mistake; these do not."""
    path = tmp_path_factory.mktemp("f32") / "model.gguf"
    write_unquantized(request.getfixturevalue(request.param), path)
    made = Rig(path, swa_full=True, cells=512)
    yield made
    made.release()
    path.unlink()


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(actions=ACTIONS)
def test_random_interleavings_on_real_weights_under_pressure(
    unquantized: Rig, actions: list[Action]
) -> None:
    unquantized.recorder.check = unquantized.compare_scratch
    unquantized.worst, engine = 0.0, unquantized.engine()
    play(engine, actions)
    unquantized.clear(engine)
    assert unquantized.worst < REAL_TOLERANCE


def test_a_hole_would_be_noticed(unquantized: Rig) -> None:
    """The tolerance means something: a few tokens missing from a prompt move the logits by more."""
    base, tails = conversation(unquantized)
    whole = scratch(unquantized.own, base + tails[0])
    without = scratch(unquantized.own, base[:-4] + tails[0])
    assert np.abs(whole - without).max() > 2 * REAL_TOLERANCE
