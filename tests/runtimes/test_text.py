"""Text from token bytes: whole characters, exact stop strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.chat import TokenLogprob
from runtimes.text import StopStrings, TextAssembler


def assembled(chunks: list[bytes], stops: list[str]) -> tuple[str, list[str]]:
    text = TextAssembler(StopStrings(stops))
    shown = [text.push(chunk).text for chunk in chunks]
    shown.append(text.finish().text)
    return "".join(shown), shown


def test_a_character_split_over_tokens_is_shown_once_it_is_whole() -> None:
    data = "né🙂".encode()
    _, shown = assembled([data[i : i + 1] for i in range(len(data))], [])
    assert [s for s in shown if s] == ["n", "é", "🙂"]


def test_a_broken_character_at_the_end_becomes_one_replacement() -> None:
    assert assembled([b"a", b"\xf0\x9f"], [])[0] == "a\ufffd"


def test_the_answer_is_cut_before_the_stop_string() -> None:
    whole, shown = assembled([b"north-st", b"ar", b"-sev", b"en"], ["ar-sev", "zzz"])
    assert whole == "north-st"
    assert not any("ar" in s for s in shown)


def test_a_false_start_of_a_stop_string_is_shown_in_the_end() -> None:
    assert assembled([b"star", b"-sev"], ["ar-sevX"])[0] == "star-sev"


def test_the_first_stop_string_to_be_complete_wins() -> None:
    assert assembled([b"abcdef"], ["ef", "cd"])[0] == "ab"


def test_text_that_cannot_begin_a_stop_string_is_never_held() -> None:
    text = TextAssembler(StopStrings(["END"]))
    assert text.push(b"hello").text == "hello"
    assert text.push(b" E").text == " "
    assert text.push(b"very").text == "Every"


def test_logprobs_come_with_the_text_of_their_tokens() -> None:
    text = TextAssembler(StopStrings(["xy"]))
    first, second = TokenLogprob(b"a x", -1.0), TokenLogprob(b"z", -2.0)
    piece = text.push(b"a x", first)
    assert (piece.text, piece.logprobs) == ("a ", (first,))
    piece = text.push(b"z", second)
    assert (piece.text, piece.logprobs) == ("xz", (second,))


@given(
    st.text(alphabet="ab🙂é", max_size=30),
    st.lists(st.text("ab🙂", min_size=1, max_size=3), max_size=3),
    st.data(),
)
def test_any_chunking_gives_the_same_text(text: str, stops: list[str], data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    whole, shown = assembled(chunks, stops)
    complete = [(at + len(s), at) for s in stops if (at := text.find(s)) >= 0]
    expected = text[: min(complete)[1]] if complete else text
    assert whole == expected
    so_far = ""
    for piece in shown:
        so_far += piece
        assert expected.startswith(so_far)


@pytest.mark.parametrize("stops", [[], [""]])
def test_no_stop_strings_hold_nothing(stops: list[str]) -> None:
    assert TextAssembler(StopStrings(stops)).push(b"abc").text == "abc"
