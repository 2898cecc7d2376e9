"""Input items as the turns of a conversation; what is read in one turn is one message."""

import json
from collections.abc import Iterable
from typing import Any, cast

from app.api.notices import Notices
from app.api.parts import JSON, object_at, optional_string, string_at, text_at
from app.api.responses.sealed import Seal
from app.api.responses.tools import Toolbox
from models.chat import Message, Role, ToolCall
from models.errors import RequestInvalid

_ROLES = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
}


def messages_of(
    items: Iterable[tuple[str, JSON]], toolbox: Toolbox, seal: Seal, notices: Notices
) -> tuple[Message, ...]:
    """The conversation of items, each with its path. Raises RequestInvalid."""
    turns = _Turns(toolbox, seal, notices)
    for path, item in items:
        turns.add(item, path)
    return turns.ended()


class _Turns:
    def __init__(self, toolbox: Toolbox, seal: Seal, notices: Notices) -> None:
        self._toolbox, self._seal, self._notices = toolbox, seal, notices
        self._messages: list[Message] = []
        # The assistant's turn that is being put together.
        self._content: str | None = None
        self._thoughts: list[str] = []
        self._later: list[str] = []
        self._calls: list[ToolCall] = []

    def ended(self) -> tuple[Message, ...]:
        if not self._spoken:
            self._thoughts = []  # nothing came of them
        self._close()
        return tuple(self._messages)

    @property
    def _spoken(self) -> bool:
        return self._content is not None or bool(self._calls)

    def add(self, item: JSON, path: str) -> None:
        kind = kind_of(item, path)
        match kind:
            case "message":
                self._message(item, path)
            case "reasoning":
                if thought := self._sealed(item, path) or _thought(item, path):
                    (self._later if self._spoken else self._thoughts).append(thought)
            case "function_call":
                self._call(item, path, _arguments(item, path))
            case "custom_tool_call":
                text = string_at(item.get("input"), f"{path}.input")
                self._call(item, path, json.dumps({"input": text}, ensure_ascii=False))
            case "function_call_output" | "custom_tool_call_output":
                self._close()
                output = item.get("output")
                content = "" if output is None else text_at(output, f"{path}.output")
                call = optional_string(item, "call_id", path)
                self._messages.append(Message(Role.TOOL, content, tool_call_id=call))
            case _:
                self._notices.ignored("input items", kind)

    def _message(self, item: JSON, path: str) -> None:
        role = _role(item.get("role"), f"{path}.role")
        content = item.get("content")
        if content is None and role is Role.ASSISTANT:
            content = ""
        text = text_at(content, f"{path}.content")
        if role is Role.ASSISTANT:
            if self._spoken:
                later = self._later
                self._close()
                self._thoughts = later
            self._content = text
        else:
            self._close()
            self._messages.append(Message(role, text))

    def _sealed(self, item: JSON, path: str) -> str | None:
        """The thought in an item's sealed copy, as it left us."""
        word = optional_string(item, "encrypted_content", path)
        if not word:
            return None
        thought = self._seal.open(word)
        if thought is None:
            self._notices.once(
                "encrypted reasoning of another server, or altered, is ignored (said once)"
            )
        return thought

    def _call(self, item: JSON, path: str, arguments: str) -> None:
        name = string_at(item.get("name"), f"{path}.name")
        given = optional_string(item, "call_id", path) or optional_string(item, "id", path)
        self._thoughts += self._later  # a turn that calls several tools is one message
        self._later = []
        self._calls.append(
            ToolCall(
                id=given or f"call_{len(self._calls)}",
                name=self._toolbox.name_of(name, optional_string(item, "namespace", path)),
                arguments=arguments,
            )
        )

    def _close(self) -> None:
        if self._spoken or self._thoughts:
            self._messages.append(
                Message(
                    role=Role.ASSISTANT,
                    content=self._content or "",
                    reasoning="\n\n".join(self._thoughts) or None,
                    tool_calls=tuple(self._calls),
                )
            )
        self._content, self._thoughts, self._later, self._calls = None, [], [], []


def kind_of(item: JSON, path: str) -> str:
    """An item's type; messages and references may leave it out. Raises RequestInvalid."""
    kind = item.get("type")
    if kind is None and "role" in item:
        return "message"
    if kind is None and item.keys() <= {"id", "type"}:
        return "item_reference"
    return string_at(kind, f"{path}.type")


def _role(value: Any, path: str) -> Role:
    role = _ROLES.get(value) if isinstance(value, str) else None
    if role is None:
        raise RequestInvalid(f"{path} must be one of {', '.join(_ROLES)}.", path)
    return role


def _thought(item: JSON, path: str) -> str:
    """Reasoning in the clear: the whole of it, else its summary."""
    return _texts(item, "content", path) or _texts(item, "summary", path)


def _texts(item: JSON, key: str, path: str) -> str:
    parts: Any = item.get(key)
    path = f"{path}.{key}"
    if parts is None or isinstance(parts, str):
        return parts or ""
    if not isinstance(parts, list):
        raise RequestInvalid(f"{path} must be a list.", path)
    texts: list[str] = []
    for index, part in enumerate(cast(list[Any], parts)):
        fields = object_at(part, f"{path}.{index}")
        texts.append(optional_string(fields, "text", f"{path}.{index}") or "")
    return "\n\n".join(text for text in texts if text)


def _arguments(item: JSON, path: str) -> str:
    arguments: Any = item.get("arguments")
    if arguments is None or isinstance(arguments, dict):  # some clients send the object itself
        arguments = json.dumps(arguments or {}, ensure_ascii=False)
    return string_at(arguments, f"{path}.arguments")
