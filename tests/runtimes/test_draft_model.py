"""A small model guesses for a large one: what is answered does not change, whatever it guesses."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from models.chat import Sampling
from runtimes.draft_model import DraftModel, same_vocabulary
from runtimes.engine import Engine
from runtimes.llamacpp.model import LlamaModel, load_writer
from runtimes.messages import LoadSpec, Submit, Vocab
from runtimes.radix import Tokens
from tests.weights import write_model

PROMPT = [i * 7 % 251 for i in range(300)]
CELLS = 1024


def loaded(path: Path, parallel: int = 3, cells: int = CELLS) -> LlamaModel:
    return load_writer(LoadSpec("", path, 512, cells, parallel, 1), lambda _: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pair")
    write_model(made / "large.gguf", "llama", seed=0)
    write_model(made / "other.gguf", "llama", seed=1)
    return made


@pytest.fixture(scope="module")
def large(folder: Path) -> Iterator[LlamaModel]:
    model = loaded(folder / "large.gguf")
    yield model
    model.release()


@pytest.fixture(params=["large", "other"])
def small(request: pytest.FixtureRequest, folder: Path) -> Iterator[LlamaModel]:
    """The same weights, which guess right, and others, which never do."""
    model = loaded(folder / f"{request.param}.gguf")
    yield model
    model.release()


def ids(tokens: Sequence[int]) -> Tokens:
    return np.array(tokens, np.int32)


def answers(large: LlamaModel, draft: DraftModel | None, prompts: list[list[int]]) -> Engine:
    """Run prompts at once; the answers are in `said`."""
    engine = Engine(large.executor, large.vocab(), 3, 512, draft_model=draft)
    for job, prompt in enumerate(prompts):
        engine.submit(Submit(job, tuple(prompt), Sampling(temperature=0), 24, None, None, False))
    return engine


def said(engine: Engine) -> dict[int, list[int]]:
    tokens: dict[int, list[int]] = {}
    while not engine.idle:
        early = engine.admit()
        for step in (early, engine.step()):
            for token in step.tokens if step else ():
                tokens.setdefault(token.id, []).append(token.token)
    room = engine.shared
    for handle in room.scheduler.residents.idle:
        room.executor.close(handle)
    return tokens


class Costless(DraftModel):
    """One that is always worth asking: of these two models none is larger."""

    @property
    def seconds(self) -> float:
        return 0.0

    @seconds.setter
    def seconds(self, value: float) -> None:
        pass


def of(small: LlamaModel, cells: int = 512) -> DraftModel:
    # random weights are sure of nothing
    return DraftModel(small.executor, len(small.vocab().pieces), cells, least_sure=0.0)


def test_a_guess_is_what_the_model_itself_would_say(folder: Path) -> None:
    model = loaded(folder / "large.gguf")
    draft = of(model)
    alone = answers(model, None, [PROMPT])
    expected = said(alone)[0]
    guesses = [draft.guess(1, ids(PROMPT), 4) for _ in range(8)]
    read = next(i for i, guess in enumerate(guesses) if guess)
    assert read > 0, "a long prompt is read in chunks, over several calls"
    assert guesses[:read] == [()] * read
    longest = max(guesses, key=len)
    assert longest == tuple(expected[: len(longest)])
    model.release()


def test_the_answers_are_the_same_with_and_without(large: LlamaModel, small: LlamaModel) -> None:
    prompts = [PROMPT, [*PROMPT[:200], 9, 8, 7], [5, 4, 3]]
    plain = said(answers(large, None, prompts))
    engine = answers(large, Costless(small.executor, 259, CELLS, least_sure=0.0), prompts)
    assert said(engine) == plain
    assert len(plain) == 3
    assert engine.stats().drafted > 0


def test_what_was_guessed_wrong_is_taken_back(small: LlamaModel) -> None:
    """After wrong guesses the memory is that of the tokens that came."""
    draft, fresh = of(small), 100
    known = list(PROMPT[:40])
    for turn in range(12):
        guess = draft.guess(1, ids(known), 3)
        same = draft.guess(fresh + turn, ids(known), 3)
        assert guess == same
        known += [*guess[: turn % 3], (turn * 37) % 250]


def test_more_requests_than_sequences_and_cells_still_get_guesses(folder: Path) -> None:
    model = loaded(folder / "large.gguf", parallel=1, cells=256)
    draft = of(model, 256)
    got = 0
    for job in range(60):
        known = ids([job * 11 % 250, *PROMPT[: 60 + job]])
        draft.keep({job})
        got += any(draft.guess(job, known, 2) for _ in range(6))
    assert got > 0
    model.release()


def test_a_prompt_longer_than_the_draft_models_context_gets_none(small: LlamaModel) -> None:
    draft = of(small, cells=128)
    assert [draft.guess(1, ids(PROMPT), 4) for _ in range(6)] == [()] * 6


def vocab(pieces: Sequence[bytes]) -> Vocab:
    return Vocab(tuple(pieces), frozenset(), frozenset(), -1, -1, "", "", False)


def test_vocabularies_are_compared_by_what_ids_mean() -> None:
    words = [str(i).encode() for i in range(1000)]
    assert same_vocabulary(vocab(words), vocab(words))
    assert same_vocabulary(vocab(words), vocab([*words, b"extra"]))
    assert not same_vocabulary(vocab(words), vocab(words[::-1]))
    assert not same_vocabulary(vocab(words), vocab(words[:500]))
    assert not same_vocabulary(vocab([]), vocab([]))
