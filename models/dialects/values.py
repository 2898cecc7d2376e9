"""The value between two tags, as JSON: what it is depends on the tool's schema."""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from models.dialects.base import Schema
from models.dialects.literals import literal

_KINDS: dict[str, Callable[[object], bool]] = {
    "string": lambda v: isinstance(v, str),
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v == int(v),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "none": None}
_DEEPEST_REFERENCE = 8


def property_schema(parameters: Schema, key: str) -> Schema | None:
    """What a tool's parameters say about one of them; None where they say nothing."""
    found = as_mapping(as_mapping(parameters.get("properties")).get(key))
    return _resolved(found, parameters) or None


def is_string(schema: Schema | None) -> bool:
    """Whether a value can be nothing but a string, so that no letter of it can tell otherwise."""
    return schema is not None and _kinds(schema) == {"string"}


def may_be_string(schema: Schema) -> bool:
    """Whether a value may be a string, among others."""
    return "string" in _kinds(schema)


def typed(text: str, schema: Schema | None) -> str:
    """The value as JSON: of a type that the schema allows, else a string. Where the schema says
    nothing, what parses as JSON is taken for that."""
    kinds = _kinds(schema) if schema is not None else set(_KINDS) - {"string"}
    if kinds == {"string"}:
        return dumped(text)
    value = _parsed(text, lenient=schema is not None)
    if value is not _NOTHING and not isinstance(value, str):
        if any(_KINDS[kind](value) for kind in kinds if kind in _KINDS):
            return dumped(value)
    elif isinstance(value, str) and schema is not None and "string" not in kinds:
        return dumped(value)
    return dumped(text)


def dumped(value: object) -> str:
    """JSON as templates write it: real characters, a space after commas and colons."""
    text = json.dumps(value, ensure_ascii=False)
    # Half a surrogate pair, which JSON's escapes can spell, is no character.
    return text if text.isprintable() or _encodes(text) else json.dumps(value)


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value where it is a mapping, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


_NOTHING = object()


def _parsed(text: str, *, lenient: bool) -> object:
    """The value that the text spells; `lenient` takes Python's words and literals too."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return _literal(text.strip()) if lenient else _NOTHING
    return value


def _literal(word: str) -> object:
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    value = literal(word) if word[:1] in ("[", "{") else None
    return _NOTHING if value is None else value


def _resolved(schema: Schema, root: Schema) -> Schema:
    """Follow references within the schema."""
    for _ in range(_DEEPEST_REFERENCE):
        path = schema.get("$ref")
        if not isinstance(path, str) or not path.startswith("#/"):
            break
        node: Schema = root
        for part in path[2:].split("/"):
            node = as_mapping(node.get(part))
        schema = node
    return schema


def _kinds(schema: Schema, depth: int = 0) -> set[str]:
    """The types a schema allows; all where it does not say, or says it elsewhere."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return {str(kind) for kind in cast("list[object]", declared)}
    options = [v for key in ("anyOf", "oneOf") for v in listed(schema.get(key))]
    if options and depth < _DEEPEST_REFERENCE:
        return set[str]().union(*(_kinds(as_mapping(o), depth + 1) for o in options))
    given = [*listed(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    if given:
        return {k for k, fits in _KINDS.items() if any(fits(value) for value in given)}
    return set(_KINDS)


def listed(value: object) -> list[object]:
    """The value where it is a list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []
