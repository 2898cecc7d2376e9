"""Text tokenized piece by piece has the tokens of the whole."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.llamacpp import binding as c
from runtimes.llamacpp import vocabulary as v
from runtimes.segments import SegmentedTokenizer, cutting

WORDS = ("hello world", " ", "  ", "\n", "\n\n", "é", "<", "<|", "<|im", "|>", "n_turn>", "42")

LONG = "a" * 4000


class Whole:
    """A model's own tokenizer, which counts what it reads."""

    def __init__(self, model: c.Model) -> None:
        self.model, self.read = model, 0
        self.every, self.marks = v.special_texts(model)

    def __call__(self, text: str, add_begin: bool, specials: bool) -> tuple[int, ...]:
        self.read += len(text)
        return v.tokenize(self.model, text, add_bos=add_begin, specials=specials)


def opened(path: Path) -> Iterator[Whole]:
    model = c.load_model(path, extra_buffers=False, gpu_layers=0, progress=lambda _: None)
    assert model is not None
    yield Whole(model)
    c.free_model(model)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Whole]:
    yield from opened(smollm2_path)


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> Iterator[Whole]:
    yield from opened(gemma3_path)


def segmented(whole: Whole) -> SegmentedTokenizer:
    cuts = cutting(whole.marks, whole.every)
    return SegmentedTokenizer(whole, cuts, whole("", True, True))


@given(data=st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_pieces_have_the_tokens_of_the_whole(
    name: str, data: st.DataObject, request: pytest.FixtureRequest
) -> None:
    whole: Whole = request.getfixturevalue(name)
    words = st.sampled_from([*WORDS, *whole.marks[:40], *whole.every[:40]])
    text = "".join(data.draw(st.lists(words | st.text(max_size=4), max_size=60)))
    text += " padding" * 64 + data.draw(words)
    add_begin = data.draw(st.booleans())
    both = segmented(whole)
    expected = whole(text, add_begin, True)
    assert both(text, add_begin, True) == expected
    assert both(text, add_begin, True) == expected  # remembered now
    assert both(text, add_begin, False) == whole(text, add_begin, False)


def test_only_what_is_new_in_a_conversation_is_tokenized(smollm2: Whole) -> None:
    turn = "<|im_start|>user\n" + "a long question " * 100 + "<|im_end|>\n"
    more = "<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"
    both = segmented(smollm2)
    both(turn, False, True)
    before = smollm2.read
    both(turn + more, False, True)
    assert smollm2.read - before <= len(more)


def test_what_is_remembered_is_bounded(smollm2: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtimes.segments._BUDGET", 2000)
    both = segmented(smollm2)
    texts = [f"<|im_start|>{n}" + " word" * 200 for n in range(5)]
    for text in texts:
        both(text, False, True)
    before = smollm2.read
    both(texts[-1], False, True)
    assert smollm2.read == before
    both(texts[0], False, True)
    assert smollm2.read > before


@pytest.mark.parametrize(
    ("marks", "others", "cuts"),
    [
        (("<a>", "<b>"), (), ("<a>", "<b>")),
        (("<a>", "<b>"), ("x<a>y",), ("<b>",)),  # within a longer one
        (("<a>", "<b>"), ("x<a",), ("<b>",)),  # the longer one may take its beginning
        (("<a>", "[b]"), ("x<",), ("[b]",)),
        (("<a>",), ("a>",), ("<a>",)),  # its own end is no danger: it is longer, and found first
        (("<a>",), ("<a>x",), ()),
    ],
)
def test_a_text_is_cut_only_at_marks_that_are_always_marks(
    marks: tuple[str, ...], others: tuple[str, ...], cuts: tuple[str, ...]
) -> None:
    assert cutting(marks, [*marks, *others]) == cuts


def test_agents_that_begin_together_have_their_shared_piece_tokenized_once() -> None:
    begun, go_on = threading.Event(), threading.Event()
    read: list[str] = []

    def slow(text: str, _begin: bool, _specials: bool) -> list[int]:
        read.append(text)
        if text == LONG:
            begun.set()
            assert go_on.wait(60)
        return list(text.encode())

    tokenizer = SegmentedTokenizer(slow, ("<end>",), ())
    with ThreadPoolExecutor(4) as agents:
        prompts = [f"{LONG}<end>{n}" for n in range(4)]
        answers = [agents.submit(tokenizer, prompt, False, True) for prompt in prompts]
        assert begun.wait(60)
        go_on.set()
        assert [bytes(answer.result()).decode() for answer in answers] == prompts
    assert sorted(read) == sorted([LONG, *(f"<end>{n}" for n in range(4))])


def test_a_piece_that_failed_is_tried_again() -> None:
    begun, go_on = threading.Event(), threading.Event()
    tries = itertools.count()

    def failing_once(text: str, _begin: bool, _specials: bool) -> list[int]:
        if next(tries) == 0:
            begun.set()
            assert go_on.wait(60)
            raise MemoryError(text[:1])
        return list(text.encode())

    tokenizer = SegmentedTokenizer(failing_once, ("<end>",), ())
    with ThreadPoolExecutor(1) as agent:
        first = agent.submit(tokenizer, LONG, False, True)
        assert begun.wait(60)
        go_on.set()
        with pytest.raises(MemoryError):
            first.result()
    assert bytes(tokenizer(LONG, False, True)).decode() == LONG
