"""Anthropic's `system`, `messages` and `tools` as one conversation; refusals name the part."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import WithJsonSchema

from app.api.notices import Notices
from app.api.parts import JSON, TEXT, object_at, optional_string, string_at
from models.chat import Conversation, Message, Role, Tool, ToolCall
from models.errors import RequestInvalid
from models.tooltext import describe

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM}

MessagesTurn = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "role": {"enum": sorted(_ROLES)},
                "content": {"anyOf": [TEXT, {"type": "array", "items": {"type": "object"}}]},
            },
            "required": ["role", "content"],
        }
    ),
]
"""A turn as clients are told of it; `_message` reads it."""
MessagesTool = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "description": TEXT,
                "input_schema": {"type": "object", "description": "a JSON schema"},
                "defer_loading": {"type": "boolean"},
            },
            "required": ["name"],
        }
    ),
]
"""A tool as clients are told of it; `tools_of` reads it."""


def conversation_of(
    system: Any, messages: list[Any], tools: Sequence[Tool], template_args: Mapping[str, Any]
) -> Conversation:
    """The whole prompt. Raises RequestInvalid."""
    if not messages:
        raise RequestInvalid("messages must hold at least one message.", "messages")
    turns = [] if system is None else _system(system)
    by_name = {tool.name: tool for tool in tools}
    for index, item in enumerate(messages):
        turns += _message(item, f"messages.{index}", by_name)
    return Conversation(tuple(turns), tuple(tools), template_args)


def tools_of(tools: Sequence[Any], notices: Notices) -> list[Tool]:
    """The tools with a schema; those that Anthropic's own servers would run are left out."""
    found: list[Tool] = []
    for index, value in enumerate(tools):
        path = f"tools.{index}"
        fields = object_at(value, path)
        kind = fields.get("type")
        if kind not in (None, "custom") and "input_schema" not in fields:
            notices.ignored("tools", kind)
            continue
        schema = fields.get("input_schema")
        name = string_at(fields.get("name"), f"{path}.name")
        if not name:
            raise RequestInvalid(f"{path}.name must not be empty.", f"{path}.name")
        found.append(
            Tool(
                name,
                optional_string(fields, "description", path) or "",
                {"type": "object"} if schema is None else object_at(schema, f"{path}.input_schema"),
                deferred=fields.get("defer_loading") is True,
                strict=fields.get("strict") is True,
            )
        )
    return found


# ---------------------------------------------------------------------- messages


def _system(value: Any) -> list[Message]:
    """A message for each block: what one of them must not say can be left out by itself."""
    blocks = [value] if isinstance(value, str) else value
    if not isinstance(blocks, list):
        raise RequestInvalid("system must be a string or a list of text blocks.", "system")
    texts = [_text(block, f"system.{i}") for i, block in enumerate(cast(list[Any], blocks))]
    return [Message(Role.SYSTEM, text) for text in texts if text]


def _message(value: Any, path: str, tools: Mapping[str, Tool]) -> list[Message]:
    fields = object_at(value, path)
    said = fields.get("role")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise RequestInvalid(f"{path}.role must be user, assistant or system.", f"{path}.role")
    content = fields.get("content")
    if isinstance(content, str):
        return [Message(role, content)]
    if not isinstance(content, list):
        where = f"{path}.content"
        raise RequestInvalid(f"{where} must be a string or a list of blocks.", where)
    blocks = [
        (object_at(block, f"{path}.content.{i}"), f"{path}.content.{i}")
        for i, block in enumerate(cast(list[Any], content))
    ]
    if role is Role.ASSISTANT:
        return [_assistant(blocks)]
    return _user(blocks, role, tools)


def _assistant(blocks: Sequence[tuple[JSON, str]]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for block, path in blocks:
        match block.get("type"):
            case "thinking":
                thoughts.append(string_at(block.get("thinking"), f"{path}.thinking"))
            case "redacted_thinking":
                pass
            case "tool_use":
                calls.append(_call(block, path))
            case _:
                texts.append(_text(block, path))
    return Message(Role.ASSISTANT, "\n".join(texts), "\n".join(thoughts) or None, tuple(calls))


def _call(block: JSON, path: str) -> ToolCall:
    arguments = object_at(block.get("input", {}), f"{path}.input")
    return ToolCall(
        string_at(block.get("id"), f"{path}.id"),
        string_at(block.get("name"), f"{path}.name"),
        json.dumps(arguments, ensure_ascii=False),
    )


def _user(
    blocks: Sequence[tuple[JSON, str]], role: Role, tools: Mapping[str, Tool]
) -> list[Message]:
    """Results come first, as turns of the tools, then what else was said."""
    results: list[Message] = []
    texts: list[str] = []
    for block, path in blocks:
        if block.get("type") == "tool_result":
            results.append(_result(block, path, tools))
        else:
            texts.append(_text(block, path))
    if texts or not results:
        results.append(Message(role, "\n".join(texts)))
    return results


def _result(block: JSON, path: str, tools: Mapping[str, Tool]) -> Message:
    content = block.get("content")
    parts = cast(list[Any], content) if isinstance(content, list) else [content or ""]
    texts = [
        part if isinstance(part, str) else _returned(part, f"{path}.content.{i}", tools)
        for i, part in enumerate(parts)
    ]
    text = "\n".join(texts)
    if block.get("is_error") is True:
        text = f"Error: {text}"
    call_id = string_at(block.get("tool_use_id"), f"{path}.tool_use_id")
    return Message(Role.TOOL, text, tool_call_id=call_id)


def _returned(value: Any, path: str, tools: Mapping[str, Tool]) -> str:
    """What a tool returned; a reference to another tool introduces it, definition and all."""
    block = object_at(value, path)
    if block.get("type") != "tool_reference":
        return _text(block, path)
    name = string_at(block.get("tool_name"), f"{path}.tool_name")
    return describe(tools[name]) if name in tools else f"There is no tool {name}."


def _text(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    block = object_at(value, path)
    kind = block.get("type")
    if kind != "text":
        raise RequestInvalid(
            f"{path} is of type {str(kind)[:40]}: only text is taken here, no images or files.",
            path,
        )
    return string_at(block.get("text"), f"{path}.text")
