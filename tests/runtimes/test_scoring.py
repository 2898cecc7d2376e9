"""How likely a prompt's own tokens were: for echoed completions, and for evaluations."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from models.chat import Prompted, RawPrompt, Sampling
from runtimes.base import Executor, Logits, Row
from runtimes.engine import Engine
from runtimes.llamacpp.model import LlamaModel, load_writer
from runtimes.messages import LoadSpec, Scored, StepDone, Submit, Vocab
from runtimes.repeating import Repeating
from tests.weights import Kind, write_model

TOLERANCE = 0.02
"""Two right computations of these models differ by less, the spread of logits is about 1."""


@pytest.fixture(scope="module", params=["llama", "gemma3", "mamba", "lfm2"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind: Kind = request.param
    return write_model(tmp_path_factory.mktemp("tiny") / f"{kind}.gguf", kind)


@pytest.fixture(params=[1, 0], ids=["quiet", "shared"])
def model(path: Path, request: pytest.FixtureRequest) -> Iterator[LlamaModel]:
    spec = LoadSpec("", path, 1024, 1024, 3, 2, quiet=request.param)
    made = load_writer(spec, lambda _: None)
    yield made
    made.release()


def engine_of(model: LlamaModel) -> Engine:
    return Engine(model.executor, model.vocab(), 3, 1024, model.quiet)


def order(job_id: int, tokens: list[int], alternatives: int | None, n: int = 2) -> Submit:
    return Submit(
        job_id, tuple(tokens), Sampling(temperature=0), n, 1, None, exact=True,
        prompt_logprobs=alternatives,
    )  # fmt: skip


def run(engine: Engine) -> list[StepDone]:
    done: list[StepDone] = []
    while not engine.idle:
        early = engine.admit()
        done += [*([early] if early else []), engine.step()]
    return done


def scored(news: list[StepDone], job_id: int) -> list[Scored]:
    return [s for step in news for s in step.scored if s.id == job_id]


def by_hand(executor: Executor, tokens: list[int]) -> list[float]:
    """The logprob of each token after the first, one row at a time."""
    found: list[float] = []
    handle = executor.open()
    for at, token in enumerate(tokens[:-1]):

        def look(logits: Logits, following: int = tokens[at + 1]) -> None:
            row = logits.row(0).astype(np.float64)
            peak = row.max()
            found.append(float(row[following] - peak - np.log(np.exp(row - peak).sum())))

        executor.step([Row(handle, [token], at, 1)], look)
    executor.close(handle)
    return found


def prompt(seed: int, size: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, 250, size)]


def test_every_token_is_told_once_in_order_and_rightly(model: LlamaModel) -> None:
    tokens = prompt(1, 150)
    engine = engine_of(model)
    engine.submit(order(0, tokens, 3))
    news = run(engine)
    told = scored(news, 0)
    positions = [s.position + i for s in told for i in range(len(s.tokens))]
    assert positions == list(range(1, 150))
    values = [value for s in told for value, _ in s.tokens]
    assert np.abs(np.array(values) - by_hand(model.executor, tokens)).max() < TOLERANCE
    for one in told:
        for at, (value, top) in enumerate(one.tokens, one.position):
            assert len(top) == 3
            assert sorted((p for _, p in top), reverse=True) == [p for _, p in top]
            assert value <= top[0][1] + 1e-6
            if tokens[at] in dict(top):
                assert dict(top)[tokens[at]] == pytest.approx(value, abs=1e-5)
    assert sum(len(step.tokens) for step in news) == 2, "the answer goes on after the prompt"


def test_what_was_read_before_and_what_runs_beside_changes_nothing(model: LlamaModel) -> None:
    tokens = prompt(2, 100)
    engine = engine_of(model)
    for job_id in (0, 1):
        engine.submit(order(job_id, tokens, 0, 8))
        engine.submit(order(10 + job_id, tokens[:60] + prompt(3, 40), 0, 8))
        engine.submit(order(20 + job_id, tokens[:80], None, 8))
        news = run(engine)
        for one, expected in ((job_id, tokens), (10 + job_id, tokens[:60] + prompt(3, 40))):
            values = [value for s in scored(news, one) for value, _ in s.tokens]
            assert len(values) == 99
            assert np.abs(np.array(values) - by_hand(model.executor, expected)).max() < TOLERANCE
        assert not scored(news, 20 + job_id)
    if engine.quiet is not None:
        engine.submit(order(30, tokens, 0))
        again = [s.tokens for s in scored(run(engine), 30)]
        engine.submit(order(31, tokens, 0))
        assert [s.tokens for s in scored(run(engine), 31)] == again, "to the last bit"


def test_a_prompt_of_one_token_has_nothing_to_tell(model: LlamaModel) -> None:
    engine = engine_of(model)
    engine.submit(order(0, [65], 1))
    news = run(engine)
    assert [value for s in scored(news, 0) for value in s.tokens] == []
    assert sum(len(step.tokens) for step in news) == 2


PIECES = (b"<s>", b"a", b"\xe2\x82", b"\xac", b"b")
VOCAB = Vocab(PIECES, frozenset(), frozenset({0}), 0, -1, "<s>", "", adds_bos=True)


def test_a_text_comes_back_as_it_was_without_what_was_put_before_it() -> None:
    said = Repeating(RawPrompt("a€b", echo=True), (0, 1, 2, 3, 4), VOCAB, with_logprobs=True)
    said.hear(Scored(0, 1, ((-1.0, ((4, -0.5),)), (-2.0, ()))))
    said.hear(Scored(0, 3, ((-3.0, ()), (-4.0, ()))))
    told = said.said()
    assert (told.text, told.first, told.lead) == ("a€b", b"<s>", 3)
    assert [t.token for t in told.tokens] == [b"a", b"\xe2\x82", b"\xac", b"b"]
    assert [t.logprob for t in told.tokens] == [-1.0, -2.0, -3.0, -4.0]
    assert told.tokens[0].top == ((b"b", -0.5),)


def test_what_is_read_again_replaces_what_was_told_before() -> None:
    said = Repeating(RawPrompt((1, 4, 1), echo=True), (1, 4, 1), VOCAB, with_logprobs=True)
    said.hear(Scored(0, 1, ((-1.0, ()),)))
    said.hear(Scored(0, 1, ((-1.5, ()), (-2.5, ()))))
    assert [t.logprob for t in said.said().tokens] == [-1.5, -2.5]


def test_token_ids_come_back_as_the_text_they_stand_for() -> None:
    ids = (0, 1, 2, 3)
    said = Repeating(RawPrompt(ids, echo=True), ids, VOCAB, with_logprobs=False).said()
    assert said == Prompted("<s>a€")
