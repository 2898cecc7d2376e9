"""Text from token bytes: whole characters, exact stop strings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.chat import (
    Event,
    Logprobs,
    Reasoning,
    Text,
    TokenLogprob,
    Tool,
    ToolCallDelta,
    ToolCallStart,
)
from models.dialects.hermes import HERMES
from models.dialects.stream import Parser
from runtimes.text import AnswerReader


def shown(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def assembled(chunks: list[bytes], stops: list[str]) -> tuple[str, list[str]]:
    reader = AnswerReader(stops)
    pieces = [shown(reader.push(chunk)) for chunk in chunks]
    pieces.append(shown(reader.finish()))
    return "".join(pieces), pieces


def test_a_character_split_over_tokens_is_shown_once_it_is_whole() -> None:
    data = "né🙂".encode()
    _, pieces = assembled([data[i : i + 1] for i in range(len(data))], [])
    assert [s for s in pieces if s] == ["n", "é", "🙂"]


def test_a_broken_character_at_the_end_becomes_one_replacement() -> None:
    assert assembled([b"a", b"\xf0\x9f"], [])[0] == "a\ufffd"


def test_the_answer_is_cut_before_the_stop_string() -> None:
    whole, pieces = assembled([b"north-st", b"ar", b"-sev", b"en"], ["ar-sev", "zzz"])
    assert whole == "north-st"
    assert not any("ar" in s for s in pieces)


def test_a_false_start_of_a_stop_string_is_shown_in_the_end() -> None:
    assert assembled([b"star", b"-sev"], ["ar-sevX"])[0] == "star-sev"


def test_the_first_stop_string_to_be_complete_wins() -> None:
    assert assembled([b"abcdef"], ["ef", "cd"])[0] == "ab"


def test_text_that_cannot_begin_a_stop_string_is_never_held() -> None:
    reader = AnswerReader(["END"])
    assert [shown(reader.push(data)) for data in (b"hello", b" E", b"very")] == [
        "hello",
        " ",
        "Every",
    ]


def test_logprobs_come_with_the_text_of_their_tokens() -> None:
    reader = AnswerReader(["xy"])
    first, second = TokenLogprob(b"a x", -1.0), TokenLogprob(b"z", -2.0)
    assert reader.push(b"a x", first) == [Logprobs((first,)), Text("a ")]
    assert reader.push(b"z", second) == [Logprobs((second,)), Text("xz")]


@given(
    st.text(alphabet="ab🙂é", max_size=30),
    st.lists(st.text("ab🙂", min_size=1, max_size=3), max_size=3),
    st.data(),
)
def test_any_chunking_gives_the_same_text(text: str, stops: list[str], data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    whole, pieces = assembled(chunks, stops)
    complete = [(at + len(s), at) for s in stops if (at := text.find(s)) >= 0]
    expected = text[: min(complete)[1]] if complete else text
    assert whole == expected
    so_far = ""
    for piece in pieces:
        so_far += piece
        assert expected.startswith(so_far)


@pytest.mark.parametrize("stops", [[], [""]])
def test_no_stop_strings_hold_nothing(stops: list[str]) -> None:
    assert AnswerReader(stops).push(b"abc") == [Text("abc")]


# ---------------------------------------------------------------------- read by a dialect

TOOL = Tool("fold", "", {"type": "object"})


def reader_of(stops: list[str], prompt_end: str = "") -> AnswerReader:
    return AnswerReader(stops, Parser(HERMES, [TOOL], prompt_end=prompt_end))


def read(reader: AnswerReader, text: str, *, cut_short: bool = False) -> list[Event]:
    events = [event for letter in text for event in reader.push(letter.encode())]
    return merged([*events, *reader.finish(cut_short=cut_short)])


def merged(events: list[Event]) -> list[Event]:
    out: list[Event] = []
    for event in events:
        last = out[-1] if out else None
        if isinstance(event, Text | Reasoning) and type(last) is type(event):
            assert isinstance(last, Text | Reasoning)
            out[-1] = type(event)(last.text + event.text)
        else:
            out.append(event)
    return out


def test_a_stop_string_is_looked_for_in_the_text_alone() -> None:
    call = '<tool_call>{"name": "fold", "arguments": {"a": "x END"}}</tool_call>'
    reader = reader_of(["END"])
    events = read(reader, f"<think>not END yet</think>Now {call}then END here")
    assert Reasoning("not END yet") in events
    assert shown(events) == "Nowthen "  # white space beside a call belongs to it
    deltas = [e.arguments for e in events if isinstance(e, ToolCallDelta)]
    assert json.loads("".join(deltas)) == {"a": "x END"}
    assert (reader.stopped, reader.called) == ("END", True)


def test_text_held_for_a_stop_string_comes_before_the_call_that_follows() -> None:
    call = '<tool_call>{"name": "fold", "arguments": {}}</tool_call>'
    kinds = [type(e) for e in read(reader_of(["END"]), f"an E{call}")]
    assert kinds[:2] == [Text, ToolCallStart]


def test_reasoning_is_counted_in_tokens() -> None:
    reader = reader_of([])
    for token in (b"<think>", b"one", b"two", b"</think>", b"three"):
        reader.push(token)
    assert reader.reasoning_tokens == 3  # with the mark that opens it


def test_a_turn_that_ends_in_reasoning_was_the_answer_itself() -> None:
    assert read(reader_of([], "<think>\n"), "It is 4.") == [Reasoning("It is 4."), Text("It is 4.")]


def test_reasoning_that_a_limit_cut_is_not_the_answer() -> None:
    assert read(reader_of([], "<think>"), "It may", cut_short=True) == [Reasoning("It may")]
