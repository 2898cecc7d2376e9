"""All rows of a step's logits in one matrix."""

from collections.abc import Iterator

import numpy as np
import pytest

from runtimes.base import Logits, Row
from runtimes.llamacpp.model import LlamaModel, load_writer
from runtimes.messages import LoadSpec
from tests.weights import write_model


@pytest.fixture(scope="module", params=["llama", "mamba"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LlamaModel]:
    path = write_model(tmp_path_factory.mktemp("tiny") / "model.gguf", request.param)
    made = load_writer(LoadSpec("", path, 256, 512, 4, 2), lambda _: None)
    yield made
    made.release()


def test_the_matrix_is_the_rows_in_their_order_and_the_same_memory(model: LlamaModel) -> None:
    """Chunks of different lengths in one step, which the kernels compute in an order of their
    own, and one that asks for nothing."""
    seen: list[int] = []

    def look(logits: Logits) -> None:
        rows = logits.rows()
        assert rows.shape == (3, model.executor.caps.vocab_size)
        assert rows.flags.c_contiguous
        for index, row in enumerate(rows):
            assert np.array_equal(row, logits.row(index))
            seen.append(int(row.argmax()))
        assert not np.array_equal(rows[0], rows[2])
        rows[1, 0] = 1234.0
        assert logits.row(1)[0] == 1234.0

    open_ = model.executor.open
    rows = [
        Row(open_(), [7], 0, True),
        Row(open_(), [1, 2, 3, 4, 5], 0, True),
        Row(open_(), [9, 9, 9], 0, False),
        Row(open_(), [3, 4], 0, True),
    ]
    model.executor.step(rows, look)
    assert len(seen) == 3
