"""The tools of a request: one flat list for the model, namespaces and free text for the client."""

from dataclasses import dataclass
from typing import Any, cast

from app.api.notices import Notices
from app.api.parts import JSON, object_at, optional_string, string_at
from models.chat import Tool, ToolChoice, ToolMode
from models.errors import RequestInvalid


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as the client knows it; a `custom` one takes free text instead of JSON."""

    name: str
    namespace: str | None = None
    custom: bool = False


class Toolbox:
    """What a request offers. Raises RequestInvalid at construction."""

    def __init__(self, tools: list[Any], notices: Notices) -> None:
        self.tools: tuple[Tool, ...] = ()
        self._notices = notices
        self._by_name: dict[str, Offered] = {}
        self._names: dict[tuple[str | None, str], str] = {}
        for index, tool in enumerate(tools):
            self._take(tool, f"tools.{index}")

    def offered(self, name: str) -> Offered:
        """What the client calls the tool that the model knows by this name."""
        return self._by_name.get(name) or Offered(name)

    def name_of(self, name: str, namespace: str | None) -> str:
        """What the model calls a tool of the client's, also one that is no longer offered."""
        return self._names.get((namespace, name)) or _joined(namespace, name)

    def choose(self, choice: Any, *, parallel: bool) -> tuple[ToolChoice, tuple[Tool, ...]]:
        """What the answer may call, and of which tools the prompt tells. Raises RequestInvalid."""
        match choice:
            case None | "auto":
                return ToolChoice(parallel=parallel), self.tools
            case "none":
                return ToolChoice(ToolMode.NONE, parallel=parallel), ()
            case "required":
                return self._required(self.tools, parallel), self.tools
            case dict():
                return self._by_object(cast(JSON, choice), parallel)
            case _:
                text = "tool_choice must be auto, none, required or an object."
                raise RequestInvalid(text, "tool_choice")

    def _by_object(self, choice: JSON, parallel: bool) -> tuple[ToolChoice, tuple[Tool, ...]]:
        match choice.get("type"):
            case "function" | "custom":
                name = self._found(choice, "tool_choice")
                if name is None:
                    text = "tool_choice names a tool that is not among the tools."
                    raise RequestInvalid(text, "tool_choice.name")
                return ToolChoice(ToolMode.REQUIRED, name, parallel), self.tools
            case "allowed_tools":
                allowed = self._allowed(choice.get("tools"), "tool_choice.tools")
                match choice.get("mode", "auto"):
                    case "auto":
                        return ToolChoice(parallel=parallel), allowed
                    case "required":
                        return self._required(allowed, parallel), allowed
                    case _:
                        path = "tool_choice.mode"
                        raise RequestInvalid(f"{path} must be auto or required.", path)
            case _:
                path = "tool_choice.type"
                text = f"{path} must be function, custom or allowed_tools: no other can be called."
                raise RequestInvalid(text, path)

    def _required(self, tools: tuple[Tool, ...], parallel: bool) -> ToolChoice:
        if not tools:
            text = "tool_choice asks for a call, but there is no tool that can be called."
            raise RequestInvalid(text, "tool_choice")
        return ToolChoice(ToolMode.REQUIRED, parallel=parallel)

    def _allowed(self, listed: Any, path: str) -> tuple[Tool, ...]:
        if not isinstance(listed, list):
            raise RequestInvalid(f"{path} must be a list.", path)
        names: set[str | None] = set()
        for index, item in enumerate(cast(list[Any], listed)):
            fields = object_at(item, f"{path}.{index}")
            if fields.get("type") in ("function", "custom"):
                names.add(self._found(fields, f"{path}.{index}"))
        return tuple(tool for tool in self.tools if tool.name in names)

    def _found(self, fields: JSON, path: str) -> str | None:
        """The model's name for a tool that a choice names, with its namespace or without."""
        name = string_at(fields.get("name"), f"{path}.name")
        namespace = optional_string(fields, "namespace", path)
        if found := self._names.get((namespace, name)):
            return found
        if namespace is not None:
            return None
        inside = [flat for (_, bare), flat in self._names.items() if bare == name]
        return inside[0] if len(inside) == 1 else None

    def _take(self, value: Any, path: str, namespace: str | None = None) -> None:
        fields = object_at(value, path)
        kind = string_at(fields.get("type"), f"{path}.type")
        match kind:
            case "function":
                self._add(fields, _parameters(fields, path), path, namespace)
            case "custom":
                self._add(fields, _free_text(fields), path, namespace, custom=True)
            case "namespace" if namespace is None:
                inner = fields.get("tools")
                if not isinstance(inner, list):
                    raise RequestInvalid(f"{path}.tools must be a list.", f"{path}.tools")
                name = _named(fields, path)
                for index, tool in enumerate(cast(list[Any], inner)):
                    self._take(tool, f"{path}.tools.{index}", name)
            case _:
                self._notices.ignored("tools", kind)

    def _add(
        self,
        fields: JSON,
        parameters: JSON,
        path: str,
        namespace: str | None,
        *,
        custom: bool = False,
    ) -> None:
        name = _named(fields, path)
        flat, number = _joined(namespace, name), 2
        while flat in self._by_name:  # `a` with `b__c`, and `a__b` with `c`
            flat, number = f"{_joined(namespace, name)}_{number}", number + 1
        self._by_name[flat] = Offered(name, namespace, custom)
        self._names.setdefault((namespace, name), flat)
        description = optional_string(fields, "description", path) or ""
        strict = fields.get("strict") is True
        self.tools += (Tool(flat, description, parameters, strict=strict),)


def _joined(namespace: str | None, name: str) -> str:
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def _named(fields: JSON, path: str) -> str:
    name = string_at(fields.get("name"), f"{path}.name")
    if not name:
        raise RequestInvalid(f"{path}.name must not be empty.", f"{path}.name")
    return name


def _parameters(fields: JSON, path: str) -> JSON:
    parameters = fields.get("parameters")
    if parameters is None:
        return {"type": "object", "properties": {}}
    return object_at(parameters, f"{path}.parameters")


def _free_text(fields: JSON) -> JSON:
    """The schema by which a model gives free text: one string. A grammar is told, not enforced."""
    text: JSON = {"type": "string"}
    match fields.get("format"):
        case {"type": "grammar", "syntax": str() as syntax, "definition": str() as definition}:
            text["description"] = f"Text of this form ({syntax}):\n{definition}"
        case _:
            pass
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }
