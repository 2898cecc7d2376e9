"""The rules that hold in every dialect."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.chat import Text, ToolCallDelta, ToolCallStart
from models.dialects.base import Dialect, NamedCalls, Tags
from models.dialects.choose import DIALECTS
from models.dialects.deepseek import DEEPSEEK_V31
from models.dialects.gemma import GEMMA_4
from models.dialects.glm import GLM
from models.dialects.harmony import HARMONY
from models.dialects.hermes import HERMES
from models.dialects.kimi import KIMI
from models.dialects.llama import LLAMA_JSON, LLAMA_PYTHON
from models.dialects.minimax import MINIMAX
from models.dialects.mistral import MISTRAL_NAMED
from models.dialects.qwen import QWEN_CODER
from models.dialects.seed import SEED
from models.dialects.stream import Parser
from tests.models.dialects.reading import TOOLS, Called, Said, Thought, read

every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)


# ------------------------------------------------------------------------------------ as it comes


def test_text_is_shown_at_once_and_only_what_may_become_markup_is_held_back() -> None:
    parser = Parser(HERMES, TOOLS)
    assert parser.push("It rains. ") == [Text("It rains.")]
    assert parser.push("a <too") == [Text(" a")]
    assert parser.push("th") == [Text(" <tooth")]
    assert parser.finish() == []


def test_arguments_stream_as_they_come() -> None:
    parser = Parser(HERMES, TOOLS)
    begun = parser.push('<tool_call>{"name": "get_weather", "arguments": {"city": "Pa')
    assert isinstance(begun[0], ToolCallStart)
    assert begun[1:] == [ToolCallDelta(0, '{"city": "Pa')]
    assert parser.push("ris") == [ToolCallDelta(0, "ris")]


def test_a_string_between_tags_streams_as_well() -> None:
    parser = Parser(QWEN_CODER, TOOLS)
    begun = parser.push("<tool_call>\n<function=write_file>\n<parameter=content>\n")
    assert begun[1:] == [ToolCallDelta(0, '{"content": "')]
    assert parser.push('print("') == [ToolCallDelta(0, 'print(\\"')]
    assert parser.push("x") == [ToolCallDelta(0, "x")]


def test_much_white_space_is_not_held_back_for_ever() -> None:
    parser = Parser(HERMES, TOOLS)
    parser.push("a")
    assert sum(len(e.text) for e in parser.push("\n" * 1000) if isinstance(e, Text)) > 900


# ------------------------------------------------------------------------------- what is no call


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (HERMES, "<tool_call>oops</tool_call>"),
        (HERMES, '<tool_call>\n{"name": "now", "argum'),
        (HERMES, '<tool_call>{"name": "now", "arguments": [1]}</tool_call>'),
        (HERMES, "a <tool_call> b <tool_call>"),
        (QWEN_CODER, "<tool_call>\n<function=now> and so on"),
        (LLAMA_JSON, '{"name": "now", "parameters": 5}'),
        (GLM, "<tool_call>not a call</tool_call>"),
        (KIMI, "<|tool_calls_section_begin|><|tool_call_begin|>now<|tool_call_end|>"),
        (GEMMA_4, "<|tool_call>call:now{a:1<tool_call|>"),
        (DEEPSEEK_V31, "see <｜tool▁calls▁begin｜> <｜tool▁calls▁end｜>"),  # noqa: RUF001
    ],
    ids=str,
)
def test_what_is_no_call_is_text_to_the_letter(dialect: Dialect, text: str) -> None:
    assert read(dialect, text) == [Said(text)]


@pytest.mark.parametrize(
    ("dialect", "text", "arguments", "rest"),
    [
        (HERMES, '<tool_call>{"name": "now", "arguments": {"a": "b', '{"a": "b', None),
        (HERMES, '<tool_call>{"name": "now", "arguments": {"a": b}}</tool_call>', '{"a": ', "b}}"),
        (
            QWEN_CODER,
            "<tool_call><function=write_file><parameter=path>a</par",
            '{"path": "a</par',
            None,
        ),
        (QWEN_CODER, "<tool_call><function=now><parameter=x>1</parameter>", '{"x": 1', None),
        (QWEN_CODER, "<tool_call><function=now><parameter=x>1", "{", "1"),
        (MISTRAL_NAMED, '[TOOL_CALLS]now[ARGS]{"a": 12', '{"a": 12', None),
    ],
    ids=str,
)
def test_a_call_that_breaks_off_has_no_end_and_the_rest_is_text(
    dialect: Dialect, text: str, arguments: str, rest: str | None
) -> None:
    spoken = read(dialect, text)
    name = "write_file" if "write_file" in text else "now"
    assert spoken[0] == Called(name, arguments, ended=False)
    said = "".join(s.text for s in spoken[1:] if isinstance(s, Said))
    assert said.startswith(rest) if rest else not said


def test_a_broken_second_call_leaves_the_first_whole() -> None:
    text = '<tool_call>{"name": "now", "arguments": {}}\n{"name"</tool_call>'
    assert read(HERMES, text) == [Called("now", "{}"), Said('\n{"name"</tool_call>')]


def test_without_tools_their_markup_is_text_but_the_turns_end_is_not() -> None:
    text = '<think>a</think><tool_call>{"name": "now", "arguments": {}}</tool_call>'
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert read(HERMES, text + "<|im_end|>", tools=()) == [Thought("a"), Said(call)]
    bare = '{"name": "now", "parameters": {}}'
    assert read(LLAMA_JSON, bare + "<|eot_id|>", tools=()) == [Said(bare)]
    call = "<|channel|>commentary to=functions.now<|message|>{}<|call|>"
    assert read(HARMONY, call, tools=()) == [Said("{}")]


# --------------------------------------------------------------------------------------- reasoning


@pytest.mark.parametrize(
    ("dialect", "prompt", "opened"),
    [
        (HERMES, "<|im_start|>assistant\n<think>\n", True),
        (HERMES, "<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        (HERMES, "<|im_start|>user\n<think>?<|im_end|>\n<|im_start|>assistant\n", False),
        (MINIMAX, "]~b]ai\n<think>\n", True),
        (GEMMA_4, "<|turn>model\n<|channel>thought\n<channel|>", False),
        (SEED, "<seed:bos>assistant\n<seed:think><seed:cot_budget_reflect>", True),
    ],
    ids=str,
)
def test_a_prompts_end_tells_whether_it_opened_reasoning(
    dialect: Dialect, prompt: str, opened: bool
) -> None:
    assert (dialect.opened_by(prompt) is not None) is opened
    assert Parser(dialect, prompt_end=prompt).thinking is opened


def test_reasoning_that_is_never_closed_can_be_told() -> None:
    parser = Parser(HERMES, prompt_end="<think>")
    events = [*parser.push("It rains."), *parser.finish()]
    assert [getattr(e, "text", None) for e in events] == ["It rains."]
    assert parser.thinking


def test_a_reasoning_tag_in_the_answer_is_text_and_a_stray_end_before_it_is_not() -> None:
    assert read(HERMES, "A <think>b</think>") == [Said("A <think>b</think>")]
    assert read(HERMES, "\n</think>\n\nA") == [Said("A")]


def test_reasoning_may_come_again_after_a_call() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    spoken = read(HERMES, f"<think>a</think>{call}\n<think>b</think>\nc")
    assert spoken == [Thought("a"), Called("now", "{}"), Thought("b"), Said("c")]


# --------------------------------------------------------------------------------------------- ids


def test_ids_follow_the_familys_rule() -> None:
    def ids(dialect: Dialect, text: str) -> list[str]:
        parser = Parser(dialect, TOOLS)
        events = [*parser.push(text), *parser.finish()]
        return [e.id for e in events if isinstance(e, ToolCallStart)]

    two = ids(HERMES, '<tool_call>{"name": "now"}</tool_call>' * 2)
    assert all(re.fullmatch(r"call_[0-9a-f]{24}", i) for i in two)
    assert len(set(two)) == 2
    two = ids(MISTRAL_NAMED, "[TOOL_CALLS]now[CALL_ID]aaaaaaaaa[ARGS]{}" * 2)
    assert two[0] == "aaaaaaaaa"
    assert two[1] != two[0]
    assert re.fullmatch(r"[A-Za-z0-9]{9}", two[1])
    call = "<|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    two = ids(KIMI, "<|tool_calls_section_begin|>" + call * 2)
    assert two == ["functions.now:0", "functions.now:1"]


# -------------------------------------------------------------------------------- whatever is said


def marks_of(dialect: Dialect) -> list[str]:
    """All marks a dialect knows, with and without what usually stands beside them."""
    marks = [*dialect.ends]
    for thinking in dialect.thinking:
        marks += [thinking.start, thinking.end]
    for section in dialect.sections:
        marks += [*section.open, *section.close]
        for form in section.forms:
            if isinstance(form, NamedCalls):
                marks += [*form.head, *form.named, *form.tail]
                if isinstance(form.arguments, Tags):
                    tags = form.arguments
                    marks += [tags.open, *tags.keyed, *tags.keyed_text, tags.close]
    if (c := dialect.channels) is not None:
        marks += [c.start, c.channel, c.message, c.constrain, *c.ends, *c.names]
        marks += [" to=functions.now", "assistant"]
    return [m for m in marks if m]


COMMON = [
    *('{"name": "now", "arguments": {}}', '{"name": "now", "parameters": {"a": 1}}', "now(x=1)"),
    *("[now(x='", "')]", '{"city": "', '"}', "{", "}", "[", "]", '"', "\\", ",", "now", "city"),
    *("call:now{", "city:", "<", ">", "\n", " ", "1", "true", "text", "`", "```json", "é😀"),
]


@every_dialect
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_text_breaks_it_and_pieces_make_no_difference(
    dialect: Dialect, data: st.DataObject
) -> None:
    fragments = st.sampled_from([*marks_of(dialect), *COMMON])
    fragment_list = data.draw(st.lists(fragments, max_size=25))
    cut_short = data.draw(st.integers(0, 3))
    text = "".join(fragment_list)
    text = text[: len(text) - cut_short]
    prompt = data.draw(st.sampled_from(["", "<think>", "<|start|>assistant"]))
    whole = read(dialect, [text], prompt_end=prompt)
    assert read(dialect, text, prompt_end=prompt) == whole
    assert read(dialect, fragment_list, prompt_end=prompt) == whole if not cut_short else True


@every_dialect
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_nothing_is_lost_where_there_is_no_call(dialect: Dialect, data: st.DataObject) -> None:
    if dialect.channels is not None:
        return  # a header is never text
    others = {*dialect.ends, *(m for t in dialect.thinking for m in (t.start, t.end))}
    marks = [m for m in [*marks_of(dialect), *COMMON] if m not in others]
    text = "".join(data.draw(st.lists(st.sampled_from(marks), max_size=20)))
    spoken = read(dialect, [text])
    if not any(isinstance(s, Called) for s in spoken):
        assert spoken == ([Said(text)] if text else [])


@every_dialect
@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>[]{}`"), min_size=1)
)
@settings(max_examples=25, deadline=None)
def test_text_without_markup_comes_back_to_the_letter(dialect: Dialect, text: str) -> None:
    assert read(dialect, text) == [Said(text)]


@every_dialect
@given(text=st.text(min_size=1))
@settings(max_examples=25, deadline=None)
def test_any_text_is_text_where_nothing_can_be_markup(dialect: Dialect, text: str) -> None:
    marks = [*dialect.ends, *(m for t in dialect.thinking for m in (t.start, t.end))]
    if not any(m in text for m in marks) and dialect.channels is None:
        assert read(dialect, text, tools=()) == [Said(text)]


@pytest.mark.parametrize(
    ("dialect", "before", "after"),
    [
        (HERMES, '<tool_call>{"name": "write_file", "arguments": {"content": "', '"}}</tool_call>'),
        (
            QWEN_CODER,
            "<tool_call><function=write_file><parameter=content>",
            "</parameter></function>",
        ),
        (GEMMA_4, '<|tool_call>call:write_file{content:<|"|>', '<|"|>}<tool_call|>'),
        (LLAMA_PYTHON, "[write_file(content='", "')]"),
        (HERMES, "", ""),
    ],
    ids=str,
)
def test_a_long_text_in_small_pieces_is_read_in_little_time(
    dialect: Dialect, before: str, after: str
) -> None:
    value = "some <tool_call> or </parameter> here " * 4000
    text = before + value + after
    begun = time.process_time()
    spoken = read(dialect, [text[i : i + 8] for i in range(0, len(text), 8)])
    assert time.process_time() - begun < 10
    assert spoken == [Called("write_file", f'{{"content": "{value}"}}') if before else Said(value)]
