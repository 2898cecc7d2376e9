"""OpenAI's `tool_choice` and `parallel_tool_calls`, in every spelling clients use."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from models.chat import ToolChoice, ToolMode
from models.errors import RequestInvalid

_WORDS = {
    "auto": ToolMode.AUTO,
    "none": ToolMode.NONE,
    "required": ToolMode.REQUIRED,
    "any": ToolMode.REQUIRED,  # Mistral's and Anthropic's word
}


def tool_choice_of(value: Any, parallel: bool | None) -> ToolChoice:
    """What the answer may call. Raises RequestInvalid."""
    many = parallel is not False
    if value is None:
        return ToolChoice(parallel=many)
    if isinstance(value, str):
        return ToolChoice(_mode(value, "tool_choice"), None, many)
    if not isinstance(value, Mapping):
        raise RequestInvalid("tool_choice must be a word or an object.", "tool_choice")
    fields = cast(Mapping[str, Any], value)
    match fields.get("type", "function"):
        case "function" | "custom" | "tool" as kind:
            return ToolChoice(ToolMode.REQUIRED, _name(fields.get(kind, fields)), many)
        case "allowed_tools":
            return _allowed(fields, many)
        case str() as word:
            return ToolChoice(_mode(word, "tool_choice.type"), None, many)
        case _:
            raise RequestInvalid("tool_choice.type must be a string.", "tool_choice.type")


def checked(choice: ToolChoice, names: Collection[str]) -> ToolChoice:
    """The choice, if tools of these names allow it. Raises RequestInvalid."""
    if choice.mode is not ToolMode.REQUIRED:
        return choice
    if not names:
        text = "tool_choice asks for a call, but no tools were sent."
        raise RequestInvalid(text, "tool_choice")
    if choice.name is not None and choice.name not in names:
        text = f"tool_choice names {choice.name[:80]}, which is not among the tools."
        raise RequestInvalid(text, "tool_choice")
    return choice


def _name(value: Any) -> str:
    name = _fields(value).get("name")
    if not isinstance(name, str) or not name:
        raise RequestInvalid("tool_choice must name a tool.", "tool_choice")
    return name


def _mode(word: str, path: str) -> ToolMode:
    mode = _WORDS.get(word)
    if mode is None:
        raise RequestInvalid(f"{path} must be auto, none, required, or name a tool.", path)
    return mode


def _allowed(fields: Mapping[str, Any], many: bool) -> ToolChoice:
    """Some of the tools: of several, a model cannot be held to these alone without another prompt;
    the mode is kept."""
    listed = _fields(fields.get("allowed_tools", fields))
    mode = _mode(str(listed.get("mode", "auto")), "tool_choice.mode")
    return ToolChoice(mode, None, many)


def _fields(value: Any) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}
