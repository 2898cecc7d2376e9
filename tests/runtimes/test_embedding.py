"""Texts as vectors: what the library itself makes of them, whoever they share a step with."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from numpy.typing import NDArray

from models.chat import RawPrompt, Request
from models.errors import ContextOverflow, RequestInvalid
from runtimes.client import start
from runtimes.embedding import Embedding
from runtimes.llamacpp.embedder import PIECE, TEXTS, LlamaEmbedder
from runtimes.llamacpp.model import LlamaEncoder, LlamaModel, load
from runtimes.local import LocalModel
from runtimes.messages import Embed, Embedded, LoadSpec
from tests.weights import CONTEXT, Kind, write_model

KINDS: list[Kind] = ["llama", "gemma3", "mamba", "lfm2", "bert"]
TOLERANCE = 0.02
LAST = 3


@pytest.fixture(scope="module", params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny") / f"{request.param}.gguf", request.param)


def spec(path: Path, context: int = CONTEXT) -> LoadSpec:
    return LoadSpec("runtimes.llamacpp.model:load", path, context, context, 2, 2)


@pytest.fixture(scope="module")
def model(path: Path) -> Iterator[LlamaModel | LlamaEncoder]:
    made = load(spec(path), lambda _: None)
    yield made
    made.release()


def text(seed: int, size: int) -> tuple[int, ...]:
    return tuple(int(t) for t in np.random.default_rng(seed).integers(0, 256, size))


def vectors_of(embedder: LlamaEmbedder, texts: list[tuple[int, ...]]) -> NDArray[np.float32]:
    work = embedder.run(texts)
    while True:
        try:
            next(work)
        except StopIteration as end:
            return np.stack(end.value)


def reference(path: Path, tokens: tuple[int, ...]) -> NDArray[np.float32]:
    """The same by llama-cpp-python's high-level interface: the whole text in one step."""
    pooling = llama_cpp.LLAMA_POOLING_TYPE_UNSPECIFIED if "bert" in path.name else LAST
    whole: Any = llama_cpp.Llama(
        str(path), embedding=True, pooling_type=pooling, n_ctx=CONTEXT, n_batch=CONTEXT,
        n_ubatch=CONTEXT, verbose=False,
    )  # fmt: skip
    try:
        batch = whole._batch
        batch.reset()
        batch.add_sequence(list(tokens), 0, True)
        whole._ctx.decode(batch)
        pointer = llama_cpp.llama_get_embeddings_seq(whole._ctx.ctx, 0)
        return np.ctypeslib.as_array(pointer, shape=(whole.n_embd(),)).copy()
    finally:
        whole.close()


@pytest.mark.parametrize("size", [1, 7, PIECE, PIECE + 200])
def test_a_text_gives_the_vector_that_the_library_gives(
    path: Path, model: LlamaModel | LlamaEncoder, size: int
) -> None:
    assert model.embedder is not None
    (vector,) = vectors_of(model.embedder, [text(size, size)])
    assert vector.shape == (model.embedder.size,)
    assert np.abs(vector - reference(path, text(size, size))).max() < TOLERANCE


def test_texts_do_not_change_each_other(model: LlamaModel | LlamaEncoder) -> None:
    assert model.embedder is not None
    texts = [text(i, 1 + i * 37 % 150) for i in range(2 * TEXTS + 3)]
    together = vectors_of(model.embedder, texts)
    for one, vector in zip(texts, together, strict=True):
        alone = vectors_of(model.embedder, [one])[0]
        assert np.abs(vector - alone).max() < TOLERANCE
        assert np.abs(vector).max() > 10 * TOLERANCE


def test_orders_are_answered_in_turn_and_can_be_forgotten(
    model: LlamaModel | LlamaEncoder,
) -> None:
    assert model.embedder is not None
    embedding = Embedding(model.embedder)
    for order_id in range(4):
        embedding.add(Embed(order_id, (text(order_id, 40),) * 3))
    embedding.step()
    embedding.cancel(0)
    embedding.cancel(2)
    answers: list[Embedded] = []
    while not embedding.idle:
        if (answer := embedding.step()) is not None:
            answers.append(answer)
    assert [answer.id for answer in answers] == [1, 3]
    for answer in answers:
        rows = np.frombuffer(answer.vectors, np.float32).reshape(3, -1)
        assert np.abs(rows - vectors_of(model.embedder, [text(answer.id, 40)])).max() < TOLERANCE


def test_an_encoder_is_loaded_for_that_alone(path: Path, model: LlamaModel | LlamaEncoder) -> None:
    assert (model.writing() is None) == ("bert" in path.name)


async def local_model(path: Path, context: int) -> LocalModel:
    return LocalModel(await start(spec(path, context), lambda _: None, print), "", 4)


async def test_texts_and_tokens_go_through_a_worker_and_what_is_too_long_is_cut_or_refused(
    path: Path, model: LlamaModel | LlamaEncoder
) -> None:
    assert model.embedder is not None
    local = await local_model(path, 256)
    try:
        made = await local.embed(["abc", (97, 98, 99), (1,) * 300], truncate=True)
        assert made.tokens == 3 + 3 + 256
        assert made.vectors.shape == (3, model.embedder.size)
        assert np.array_equal(made.vectors[0], made.vectors[1])
        expected = vectors_of(model.embedder, [tuple(b"abc"), (1,) * 256])
        assert np.abs(made.vectors[1:] - expected).max() < TOLERANCE
        with pytest.raises(ContextOverflow):
            await local.embed(["a" * 257], truncate=False)
        with pytest.raises(RequestInvalid, match="between 0 and"):
            await local.embed([(300,)], truncate=True)
        assert (await local.embed([], truncate=True)).vectors.shape[0] == 0
        if "bert" in path.name:
            assert local.context == 256
            with pytest.raises(RequestInvalid, match="writes no text"):
                await anext(local.generate(Request("m", RawPrompt("a"))))
        assert local.worker.jobs == 0
    finally:
        await local.close()
