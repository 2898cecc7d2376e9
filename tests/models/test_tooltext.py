"""Templates that know no tools still tell of them, and of calls and what came back."""

import pytest

from models.chat import Conversation, Message, Role, Tool, ToolCall
from models.templates import ChatTemplate, fallback_source

TOOL = Tool("fold", "Folds paper.", {"type": "object", "properties": {"side": {"type": "string"}}})
LATER = Tool("cut", "Cuts paper.", {"type": "object"}, deferred=True)
ASK = Message(Role.USER, "Fold it.")
CALLED = Message(Role.ASSISTANT, "Gladly.", tool_calls=(ToolCall("a", "fold", '{"side":"left"}'),))
RETURNED = Message(Role.TOOL, "folded", tool_call_id="a")


def templates() -> list[str]:
    marks = ["<|im_start|>", "<start_of_turn>", "<|start_header_id|>", "none"]
    return [fallback_source([mark]) for mark in marks]


@pytest.fixture(params=templates(), ids=["chatml", "gemma", "llama3", "plain"])
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    return ChatTemplate(request.param)


def test_tools_are_told_in_the_system_prompt(template: ChatTemplate) -> None:
    system = Message(Role.SYSTEM, "Be brief.")
    text = template.render(Conversation((system, ASK), (TOOL, LATER)))
    assert text.index("Be brief.") < text.index('"name": "fold"') < text.index("Fold it.")
    assert "cut" not in text  # it is told of where the conversation introduces it


def test_without_a_system_prompt_there_is_one(template: ChatTemplate) -> None:
    text = template.render(Conversation((ASK,), (TOOL,)))
    assert text.index('"name": "fold"') < text.index("Fold it.")


def test_calls_and_what_they_returned_are_in_the_text(template: ChatTemplate) -> None:
    text = template.render(Conversation((ASK, CALLED, RETURNED, RETURNED, ASK), (TOOL,)))
    call = '<tool_call>\n{"name": "fold", "arguments": {"side": "left"}}\n</tool_call>'
    assert text.count(call) == 1
    assert text.index("Gladly.") < text.index(call)
    response = "<tool_response>\nfolded\n</tool_response>"
    assert f"{response}\n{response}" in text


def test_a_call_that_was_no_json_is_shown_as_it_was(template: ChatTemplate) -> None:
    broken = Message(Role.ASSISTANT, "", tool_calls=(ToolCall("a", "fold", '{"side":'),))
    assert '"arguments": {"side":}' in template.render(Conversation((ASK, broken, RETURNED)))


def test_a_further_turn_only_adds_to_the_prompt(template: ChatTemplate) -> None:
    turns = (ASK, CALLED, RETURNED, Message(Role.ASSISTANT, "Done."), ASK)
    short = template.render(Conversation(turns[:3], (TOOL,)))
    assert template.render(Conversation(turns, (TOOL,))).startswith(short)


def test_a_template_that_knows_tools_gets_them_itself() -> None:
    source = (
        "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}"
        "<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}({{ c.function.name }})"
        "{% endfor %}{% endfor %}"
    )
    text = ChatTemplate(source).render(Conversation((ASK, CALLED, RETURNED), (TOOL, LATER)))
    assert text == "[fold]<user>Fold it.<assistant>Gladly.(fold)<tool>folded"
