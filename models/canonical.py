"""Prompts without what changes from request to request and means nothing to the model.

Agents put a hash of the session at the top, list their tools in the order in which these happened
to register, and shuffle the keys of schemas; each of these voids the cached prefix from there on.
What a user says is never touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from models.chat import Conversation, Message, Role, Tool

# A line that Claude Code puts before its system prompt: a hash of the session, and no instruction.
BILLING_HEADER = "x-anthropic-billing-header:"


@dataclass(frozen=True, slots=True)
class Canonical:
    """A conversation as it goes into the template, and what was done to it, for the log."""

    conversation: Conversation
    changes: tuple[str, ...] = ()


def canonical(conversation: Conversation) -> Canonical:
    """The same conversation, equal for equal meanings."""
    changes: list[str] = []
    freed = [_without_header(message) for message in conversation.messages]
    messages = tuple(m for m in freed if m.content or m.role is not Role.SYSTEM)
    if freed != list(conversation.messages):
        changes.append("a billing header was left out of the system prompt")
    tools = tuple(sorted(map(_ordered, conversation.tools), key=lambda tool: tool.name))
    if [t.name for t in tools] != [t.name for t in conversation.tools]:
        changes.append("tools were put in order")
    return Canonical(replace(conversation, messages=messages, tools=tools), tuple(changes))


def _without_header(message: Message) -> Message:
    if message.role is not Role.SYSTEM or BILLING_HEADER not in message.content:
        return message
    kept = [
        line
        for line in message.content.split("\n")
        if not line.lstrip().lower().startswith(BILLING_HEADER)
    ]
    return replace(message, content="\n".join(kept).lstrip("\n"))


def _ordered(tool: Tool) -> Tool:
    return replace(tool, parameters=cast(Mapping[str, Any], _sorted(tool.parameters)))


def _sorted(value: Any) -> Any:
    """JSON with the keys of all objects in order."""
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, Any], value)
        return {key: _sorted(fields[key]) for key in sorted(fields)}
    if isinstance(value, list):
        return [_sorted(item) for item in cast(list[Any], value)]
    return value
