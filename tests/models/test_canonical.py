"""Two requests that mean the same have the same prompt."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from models.canonical import canonical
from models.chat import Conversation, Message, Role, Tool

ASK = Message(Role.USER, "x-anthropic-billing-header: is what?")


def conversation(system: str, *tools: Tool) -> Conversation:
    return Conversation((Message(Role.SYSTEM, system), ASK), tools)


def test_a_billing_header_is_left_out_of_the_system_prompt_and_of_nothing_else() -> None:
    made = canonical(
        conversation("x-anthropic-billing-header: cc_version=1; cch=ab12;\n\nYou are terse.")
    )
    assert made.conversation.messages == (Message(Role.SYSTEM, "You are terse."), ASK)
    assert made.changes == ("a billing header was left out of the system prompt",)


def test_a_system_message_that_is_nothing_else_is_left_out() -> None:
    block = Message(Role.SYSTEM, "x-anthropic-billing-header: cc_version=1;")
    rest = Message(Role.SYSTEM, "You are terse.")
    assert canonical(Conversation((block, rest, ASK))).conversation.messages == (rest, ASK)


def test_a_late_system_message_is_freed_of_it_too() -> None:
    late = Message(Role.SYSTEM, "a\nx-anthropic-billing-header: 1\nb")
    made = canonical(Conversation((ASK, late)))
    assert made.conversation.messages[1].content == "a\nb"


def test_nothing_is_said_of_what_was_in_order() -> None:
    plain = conversation("You are terse.", Tool("a", "", {}), Tool("b", "", {}))
    assert canonical(plain).conversation == plain
    assert canonical(plain).changes == ()


def test_tools_and_keys_in_any_order_are_the_same_tools() -> None:
    one = Tool("one", "first", {"type": "object", "properties": {"b": {}, "a": {}}})
    two = Tool("two", "second", {"type": "object"})
    turned = replace(one, parameters={"properties": {"a": {}, "b": {}}, "type": "object"})
    left = canonical(conversation("", one, two)).conversation
    right = canonical(conversation("", two, turned)).conversation
    assert repr(left) == repr(right)  # the order of keys, which == does not see


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), JSON))
def test_no_schema_loses_anything(parameters: dict[str, Any]) -> None:
    made = canonical(conversation("", Tool("t", "", parameters))).conversation
    assert made.tools[0].parameters == parameters
