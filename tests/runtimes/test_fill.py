"""Filling in text: the marks for it are found in the model's own vocabulary."""

from pathlib import Path

import pytest

from runtimes.llamacpp.model import load_writer
from runtimes.messages import LoadSpec
from tests.weights import write_model

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        (QWEN, (259, 260, 261)),
        (QWEN[::-1], (261, 260, 259)),
        (("<PRE>", "<SUF>", "<MID>"), (259, 260, 261)),
        (QWEN[:2], None),
        ((), None),
    ],
)
def test_the_marks_of_a_vocabulary(
    tmp_path: Path, marks: tuple[str, ...], found: tuple[int, int, int] | None
) -> None:
    path = write_model(tmp_path / "tiny.gguf", "llama", marks=marks)
    model = load_writer(LoadSpec("", path, 64, 64, 1, 1), lambda _: None)
    try:
        assert model.vocab().fill == found
    finally:
        model.release()
