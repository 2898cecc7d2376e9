"""OpenAI's `messages` and `tools` as one conversation; every refusal names the part."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import WithJsonSchema

from app.api.parts import CONTENT, JSON, TEXT, object_at, optional_string, string_at, text_at
from models.chat import Conversation, Message, Role, Tool, ToolCall
from models.errors import RequestInvalid

_ROLES = {role.value: role for role in Role} | {"developer": Role.SYSTEM}
_CALL: JSON = {
    "type": "object",
    "properties": {"id": TEXT, "function": {"type": "object"}},
    "required": ["function"],
}
ChatMessage = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "role": {"enum": sorted(_ROLES)},
                "content": CONTENT,
                "reasoning_content": TEXT,
                "tool_calls": {"type": "array", "items": _CALL},
                "tool_call_id": TEXT,
                "name": TEXT,
            },
            "required": ["role"],
        }
    ),
]
"""A message as clients are told of it; `_message` reads it."""
ChatTool = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "type": {"enum": ["function"]},
                "function": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "minLength": 1},
                        "description": TEXT,
                        "parameters": {"type": "object", "description": "a JSON schema"},
                    },
                    "required": ["name"],
                },
            },
            "required": ["function"],
        }
    ),
]
"""A tool as clients are told of it; `_tool` reads it."""
_RESERVED = {"messages", "tools", "add_generation_prompt"}


def conversation_of(
    messages: list[Any], tools: list[Any], template_args: Mapping[str, Any]
) -> Conversation:
    """The whole prompt. Raises RequestInvalid."""
    if not messages:
        raise RequestInvalid("messages must hold at least one message.", "messages")
    if taken := _RESERVED & template_args.keys():
        path = f"chat_template_kwargs.{min(taken)}"
        raise RequestInvalid(f"{path} cannot be given: the server sets it.", path)
    return Conversation(
        messages=tuple(_message(item, f"messages.{i}") for i, item in enumerate(messages)),
        tools=tuple(_tool(item, f"tools.{i}") for i, item in enumerate(tools)),
        template_args=template_args,
    )


def _message(value: Any, path: str) -> Message:
    fields = object_at(value, path)
    role = _role(fields.get("role"), f"{path}.role")
    reasoning = optional_string(fields, "reasoning_content", path) or optional_string(
        fields, "reasoning", path
    )
    return Message(
        role=role,
        content=_content(fields, role, path),
        reasoning=reasoning if role is Role.ASSISTANT else None,
        tool_calls=_tool_calls(fields, path) if role is Role.ASSISTANT else (),
        tool_call_id=optional_string(fields, "tool_call_id", path),
        name=optional_string(fields, "name", path),
    )


def _role(value: Any, path: str) -> Role:
    role = _ROLES.get(value) if isinstance(value, str) else None
    if role is None:
        raise RequestInvalid(f"{path} must be one of {', '.join(sorted(_ROLES))}.", path)
    return role


def _content(fields: JSON, role: Role, path: str) -> str:
    content = fields.get("content")
    if content is None and role in (Role.ASSISTANT, Role.TOOL):
        return optional_string(fields, "refusal", path) or ""
    return text_at(content, f"{path}.content")


def _tool_calls(fields: JSON, path: str) -> tuple[ToolCall, ...]:
    calls = fields.get("tool_calls")
    if calls is None:
        return ()
    path = f"{path}.tool_calls"
    if not isinstance(calls, list):
        raise RequestInvalid(f"{path} must be a list.", path)
    listed = cast(list[Any], calls)
    return tuple(_tool_call(call, f"{path}.{i}", i) for i, call in enumerate(listed))


def _tool_call(value: Any, path: str, index: int) -> ToolCall:
    call = object_at(value, path)
    function = object_at(call.get("function"), f"{path}.function")
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, dict):  # some clients send the object itself
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(
        id=optional_string(call, "id", path) or f"call_{index}",
        name=string_at(function.get("name"), f"{path}.function.name"),
        arguments=string_at(arguments, f"{path}.function.arguments"),
    )


def _tool(value: Any, path: str) -> Tool:
    tool = object_at(value, path)
    if tool.get("type", "function") != "function":
        raise RequestInvalid(f"{path}.type must be function.", f"{path}.type")
    function = object_at(tool.get("function"), f"{path}.function")
    path = f"{path}.function"
    name = string_at(function.get("name"), f"{path}.name")
    if not name:
        raise RequestInvalid(f"{path}.name must not be empty.", f"{path}.name")
    parameters: Any = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    return Tool(
        name=name,
        description=optional_string(function, "description", path) or "",
        parameters=object_at(parameters, f"{path}.parameters"),
        strict=function.get("strict") is True,
    )
