"""OpenAI's `messages` and `tools` as one conversation; every refusal names the part."""

import json
from collections.abc import Mapping
from typing import Any, cast

from models.chat import Conversation, Message, Role, Tool, ToolCall
from models.errors import RequestInvalid

_ROLES = {role.value: role for role in Role} | {"developer": Role.SYSTEM}
_SEEN = {"image_url", "image", "input_image", "input_audio", "audio", "file", "video_url"}
_RESERVED = {"messages", "tools", "add_generation_prompt"}
JSON = dict[str, Any]


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


def _object(value: Any, path: str) -> JSON:
    if not isinstance(value, dict):
        raise RequestInvalid(f"{path} must be an object.", path)
    return cast(JSON, value)


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise RequestInvalid(f"{path} must be a string.", path)
    return value


def _optional(fields: JSON, key: str, path: str) -> str | None:
    value = fields.get(key)
    return None if value is None else _string(value, f"{path}.{key}")


def _message(value: Any, path: str) -> Message:
    fields = _object(value, path)
    role = _role(fields.get("role"), f"{path}.role")
    reasoning = _optional(fields, "reasoning_content", path) or _optional(fields, "reasoning", path)
    return Message(
        role=role,
        content=_content(fields, role, path),
        reasoning=reasoning if role is Role.ASSISTANT else None,
        tool_calls=_tool_calls(fields, path) if role is Role.ASSISTANT else (),
        tool_call_id=_optional(fields, "tool_call_id", path),
        name=_optional(fields, "name", path),
    )


def _role(value: Any, path: str) -> Role:
    role = _ROLES.get(value) if isinstance(value, str) else None
    if role is None:
        raise RequestInvalid(f"{path} must be one of {', '.join(sorted(_ROLES))}.", path)
    return role


def _content(fields: JSON, role: Role, path: str) -> str:
    content = fields.get("content")
    path = f"{path}.content"
    match content:
        case str():
            return content
        case list():
            parts = cast(list[Any], content)
            return "\n".join(_part(part, f"{path}.{i}") for i, part in enumerate(parts))
        case None if role in (Role.ASSISTANT, Role.TOOL):
            return _optional(fields, "refusal", path) or ""
        case None:
            raise RequestInvalid(f"{path} is required.", path)
        case _:
            raise RequestInvalid(f"{path} must be a string or a list of parts.", path)


def _part(value: Any, path: str) -> str:
    if isinstance(value, str):
        return value
    part = _object(value, path)
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return _string(part.get("text"), f"{path}.text")
        case "refusal":
            return _string(part.get("refusal"), f"{path}.refusal")
        case str() as kind if kind in _SEEN:
            raise RequestInvalid(
                f"{path} is of type {kind}: only text is taken, no images, audio or files.",
                path,
            )
        case _:
            raise RequestInvalid(f"{path}.type must be text.", f"{path}.type")


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
    call = _object(value, path)
    function = _object(call.get("function"), f"{path}.function")
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, dict):  # some clients send the object itself
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(
        id=_optional(call, "id", path) or f"call_{index}",
        name=_string(function.get("name"), f"{path}.function.name"),
        arguments=_string(arguments, f"{path}.function.arguments"),
    )


def _tool(value: Any, path: str) -> Tool:
    tool = _object(value, path)
    if tool.get("type", "function") != "function":
        raise RequestInvalid(f"{path}.type must be function.", f"{path}.type")
    function = _object(tool.get("function"), f"{path}.function")
    path = f"{path}.function"
    name = _string(function.get("name"), f"{path}.name")
    if not name:
        raise RequestInvalid(f"{path}.name must not be empty.", f"{path}.name")
    parameters: Any = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    return Tool(
        name=name,
        description=_optional(function, "description", path) or "",
        parameters=_object(parameters, f"{path}.parameters"),
    )
