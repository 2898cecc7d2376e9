"""What a model is given for a request, and how its answer is read."""

from dataclasses import replace

import pytest

from models.chat import (
    Constraint,
    ConstraintKind,
    Conversation,
    Message,
    RawPrompt,
    Reasoning,
    Request,
    Role,
    Text,
    Tool,
    ToolCallStart,
    ToolChoice,
    ToolMode,
)
from models.errors import ContextOverflow, RequestInvalid
from models.templates import fallback_source
from runtimes.messages import Guide, Thought, Vocab
from runtimes.prompting import Prompt, Prompter

MARKS = ("<|im_start|>", "<|im_end|>")
PIECES = (*(bytes([i]) for i in range(256)), *(mark.encode() for mark in MARKS))
VOCAB = Vocab(PIECES, frozenset({257}), frozenset({256, 257}), -1, 257, "", MARKS[1], False)
CHATML = fallback_source(MARKS)
ASK = Message(Role.USER, "Fold.")
FOLD = Tool("fold", "", {"type": "object", "properties": {"a": {"type": "string"}}})
CUT = Tool("cut", "", {"type": "object"})


async def encode(text: str, add_bos: bool) -> tuple[int, ...]:
    for at, mark in enumerate(MARKS):
        text = text.replace(mark, chr(0xE000 + at))
    return tuple(
        256 + ord(c) - 0xE000 if ord(c) >= 0xE000 else byte for c in text for byte in c.encode()[:1]
    )


async def prompted(
    request: Request, source: str = CHATML, *, canonical_prompts: bool = True
) -> Prompt:
    made = Prompter(VOCAB, source, encode, 2000, canonical_prompts=canonical_prompts)
    try:
        return await made.prompt(request)
    finally:
        made.close()


def request(*tools: Tool, choice: ToolChoice | None = None, system: str = "") -> Request:
    messages = (Message(Role.SYSTEM, system), ASK) if system else (ASK,)
    return Request("m", Conversation(messages, tools), tool_choice=choice or ToolChoice())


def text_of(prompt: Prompt) -> str:
    return b"".join(PIECES[token] for token in prompt.tokens).decode()


async def test_a_conversation_begins_a_message_at_each_mark() -> None:
    prompt = await prompted(request(system="Be brief."))
    assert text_of(prompt).startswith("<|im_start|>system\nBe brief.<|im_end|>")
    assert all(prompt.tokens[at] in VOCAB.control_ids for at in prompt.boundaries)
    assert prompt.parser is not None


async def test_a_raw_prompt_is_taken_as_it_is_and_so_is_its_answer() -> None:
    prompt = await prompted(Request("m", RawPrompt("once")))
    assert (text_of(prompt), prompt.parser) == ("once", None)
    prompt = await prompted(Request("m", RawPrompt((5, 6))))
    assert prompt.tokens == (5, 6)


async def test_a_far_too_long_text_is_refused_before_it_is_tokenized() -> None:
    with pytest.raises(ContextOverflow, match="at least"):
        await prompted(Request("m", RawPrompt("x" * 100_000)))


async def test_an_answer_of_a_wanted_shape_is_not_searched_for_calls() -> None:
    shape = Constraint(ConstraintKind.JSON_OBJECT)
    asked = Request("m", Conversation((ASK,)), constraint=shape)
    prompt = await prompted(asked)
    assert (prompt.parser, prompt.guide) == (None, Guide(shape))


async def test_tools_that_may_be_called_leave_the_answer_free() -> None:
    prompt = await prompted(request(FOLD))
    assert prompt.parser is not None
    assert prompt.guide is not None
    assert prompt.guide.triggers == (b"<tool_call>",)
    call = '<tool_call>{"name": "fold", "arguments": {"a": "b"}}</tool_call>'
    starts = [e for e in prompt.parser.push(call) if isinstance(e, ToolCallStart)]
    assert [start.name for start in starts] == ["fold"]


async def test_a_required_call_is_a_grammar_of_calls() -> None:
    prompt = await prompted(request(FOLD, CUT, choice=ToolChoice(ToolMode.REQUIRED)))
    assert prompt.guide is not None
    assert prompt.guide.constraint.kind is ConstraintKind.CALLS
    assert '\\"name\\": \\"fold' in prompt.guide.constraint.source
    assert '\\"name\\": \\"cut' in prompt.guide.constraint.source
    assert "call)*" in prompt.guide.constraint.source  # more than one


async def test_a_named_tool_is_called_once() -> None:
    prompt = await prompted(request(FOLD, CUT, choice=ToolChoice(ToolMode.REQUIRED, "fold")))
    assert prompt.guide is not None
    assert '\\"name\\": \\"cut' not in prompt.guide.constraint.source
    assert "call)*" not in prompt.guide.constraint.source


async def test_a_family_whose_calls_are_no_grammar_is_held_to_json() -> None:
    pythonic = CHATML + "{# <|tool_list_start|> <|tool_call_start|>[f()] #}"
    choice = ToolChoice(ToolMode.REQUIRED)
    prompt = await prompted(request(FOLD, choice=choice), pythonic)
    assert prompt.guide is not None
    assert "fold" in prompt.guide.constraint.source


async def test_a_session_s_hash_is_no_part_of_the_prompt_unless_wanted() -> None:
    said = request(system="x-anthropic-billing-header: 1\nBe brief.")
    assert "billing" not in text_of(await prompted(said))
    assert "billing" in text_of(await prompted(said, canonical_prompts=False))


async def test_tools_are_told_in_one_order() -> None:
    one, other = await prompted(request(FOLD, CUT)), await prompted(request(CUT, FOLD))
    assert one.tokens == other.tokens


async def test_reasoning_that_the_template_opened_is_read_as_such() -> None:
    prompt = await prompted(request(), CHATML + "{{ '<think>\\n' }}")
    assert prompt.parser is not None
    assert prompt.parser.thinking


SHAPE = Constraint(ConstraintKind.JSON_OBJECT)
OPENED = CHATML + "{{ '<think>\\n' }}"


async def test_a_shape_beside_tools_is_one_grammar_and_calls_are_still_read() -> None:
    asked = Request("m", Conversation((ASK,), (FOLD,)), constraint=SHAPE)
    prompt = await prompted(asked)
    assert prompt.guide is not None
    assert prompt.guide.constraint.kind is ConstraintKind.ANSWER
    assert prompt.guide.triggers == ()
    assert prompt.parser is not None
    call = '<tool_call>\n{"name": "fold", "arguments": {"a": "b"}}\n</tool_call>'
    events = [*prompt.parser.push(call), *prompt.parser.finish()]
    assert [e.name for e in events if isinstance(e, ToolCallStart)] == ["fold"]


async def test_no_tool_choice_leaves_the_shape_alone() -> None:
    choice = ToolChoice(ToolMode.NONE)
    asked = Request("m", Conversation((ASK,), (FOLD,)), constraint=SHAPE, tool_choice=choice)
    assert (await prompted(asked)).guide == Guide(SHAPE)


async def test_a_shape_holds_after_the_reasoning_and_not_in_it() -> None:
    prompt = await prompted(Request("m", Conversation((ASK,)), constraint=SHAPE), OPENED)
    assert prompt.guide == Guide(SHAPE, thought=Thought(b"<think>", b"</think>", opened=True))
    assert prompt.parser is not None
    events = [*prompt.parser.push('So.</think>\n{"a": "<|im_end|>"}'), *prompt.parser.finish()]
    assert "".join(e.text for e in events if isinstance(e, Reasoning)) == "So."
    assert "".join(e.text for e in events if isinstance(e, Text)) == '{"a": "<|im_end|>"}'


async def test_a_forced_call_comes_after_the_reasoning() -> None:
    choice = ToolChoice(ToolMode.REQUIRED)
    prompt = await prompted(request(FOLD, choice=choice), OPENED)
    assert prompt.guide is not None
    assert prompt.guide.thought == Thought(b"<think>", b"</think>", opened=True)


async def test_only_schemas_of_tools_that_are_not_strict_may_be_given_up() -> None:
    strict = replace(FOLD, strict=True)
    for tool, has_fallback in ((FOLD, True), (strict, False)):
        prompt = await prompted(request(tool))
        assert prompt.guide is not None
        assert (prompt.guide.fallback is not None) is has_fallback


async def test_a_suffix_goes_between_the_marks_of_the_vocabulary() -> None:
    marks = replace(VOCAB, fill=(901, 902, 903))
    made = Prompter(marks, CHATML, encode, 2000)
    try:
        prompt = await made.prompt(Request("m", RawPrompt("ab", suffix="c")))
        first = (VOCAB.bos_id,) if VOCAB.adds_bos else ()
        middle = (*await encode("ab", False), 902, *await encode("c", False), 903)
        assert prompt.tokens == (*first, 901, *middle)
        ids = await made.prompt(Request("m", RawPrompt((5, 6), suffix="c")))
        assert ids.tokens == (*first, 901, 5, 6, 902, *await encode("c", False), 903)
    finally:
        made.close()


async def test_a_suffix_is_refused_by_a_model_that_cannot_fill_in() -> None:
    with pytest.raises(RequestInvalid, match="no marks for it") as refusal:
        await prompted(Request("m", RawPrompt("ab", suffix="c")))
    assert refusal.value.param == "suffix"
