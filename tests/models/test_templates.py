"""Chat templates: what they cannot express is coerced, the same way in every turn."""

from itertools import pairwise

import pytest

from models.chat import Conversation, Message, Role, Tool, ToolCall
from models.errors import TemplateFailed
from models.templates import ChatTemplate, fallback_source

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
STRICT = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
)
LEADING_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('system first') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)


def said(*turns: tuple[str, str]) -> Conversation:
    return Conversation(tuple(Message(Role(role), content) for role, content in turns))


def test_a_conversation_is_rendered_up_to_where_the_assistant_speaks() -> None:
    template = ChatTemplate(CHATML)
    assert template.render(said(("user", "hi"))) == "<|user|>hi<|assistant|>"


def test_a_system_turn_is_folded_into_the_first_user_turn_where_there_is_no_such_role() -> None:
    template = ChatTemplate(STRICT, bos="<s>")
    assert not template.traits.system
    text = template.render(said(("system", "be brief"), ("user", "hi")))
    assert text == "<s><user>be brief\n\nhi<assistant>"


def test_neighbours_of_one_speaker_are_joined_by_a_blank_line() -> None:
    text = ChatTemplate(STRICT).render(
        said(("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e"))
    )
    assert text == "<user>a\n\nb<assistant>c\n\nd<user>e<assistant>"


def test_a_conversation_may_begin_with_the_assistant() -> None:
    text = ChatTemplate(STRICT).render(said(("assistant", "welcome"), ("user", "hi")))
    assert text == "<user><assistant>welcome<user>hi<assistant>"


def test_a_late_system_turn_becomes_a_marked_note_where_it_stands() -> None:
    template = ChatTemplate(LEADING_SYSTEM)
    assert not template.traits.late_system
    text = template.render(said(("system", "s"), ("user", "a"), ("system", "late"), ("user", "b")))
    assert text == "<system>s<user>a<user>[System note]\nlate<user>b"


@pytest.mark.parametrize("source", [CHATML, STRICT, LEADING_SYSTEM])
def test_a_new_turn_never_changes_the_beginning_of_the_prompt(source: str) -> None:
    template = ChatTemplate(source)
    turns = [
        ("system", "rules"),
        ("user", "first"),
        ("assistant", "answer"),
        ("user", "second"),
        ("assistant", "more"),
        ("system", "a note"),
        ("user", "third"),
    ]
    stable = [template.render(said(*turns[:n])) for n in (2, 4, 7)]
    for shorter, longer in pairwise(stable):
        kept = shorter.removesuffix("<assistant>").removesuffix("<|assistant|>")
        assert longer.startswith(kept)


def test_tools_and_calls_reach_the_template_in_the_shape_it_expects() -> None:
    source = (
        "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
        "{% for m in messages %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.name }}={{ c.function.arguments.city }}"
        "{% endfor %}{% endfor %}"
    )
    template = ChatTemplate(source)
    assert template.traits.tools
    call = ToolCall("1", "weather", '{"city": "Zürich"}')
    messages = (
        Message(Role.USER, "?"),
        Message(Role.ASSISTANT, "", tool_calls=(call,)),
        Message(Role.TOOL, "sun", tool_call_id="1"),
    )
    tool = Tool("weather", "of a city", {"type": "object"})
    text = template.render(Conversation(messages, (tool,)))
    assert text.endswith("?weather=Zürichsun")
    assert '"name": "weather"' in text


def test_generation_marks_and_loop_controls_are_understood() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    assert ChatTemplate(source).render(said(("user", "a"), ("assistant", "b"))) == "a"


def test_what_still_cannot_be_rendered_is_refused_with_the_template_s_own_words() -> None:
    with pytest.raises(TemplateFailed, match="never in a month of Sundays"):
        ChatTemplate("{{ raise_exception('never in a month of Sundays') }}").render(
            said(("user", "hi"))
        )


def test_a_template_that_does_not_parse_is_refused() -> None:
    with pytest.raises(TemplateFailed, match="does not parse"):
        ChatTemplate("{% for %}")


def test_the_sandbox_keeps_templates_away_from_python() -> None:
    with pytest.raises(TemplateFailed):
        ChatTemplate("{{ ''.__class__.__mro__ }}").render(said(("user", "hi")))


@pytest.mark.parametrize(
    ("markup", "start"),
    [
        (["<|im_start|>"], "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"),
        (["<start_of_turn>"], "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"),
        ([], "User: hi\nAssistant:"),
    ],
)
def test_a_model_without_a_template_gets_one_by_its_markup(markup: list[str], start: str) -> None:
    assert ChatTemplate(fallback_source(markup)).render(said(("user", "hi"))) == start
