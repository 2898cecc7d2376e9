"""The shape an answer must have, in each spelling in use."""

import json
import re
from collections.abc import Callable
from typing import Any, cast

from app.api.sampling import SharedFields
from models.chat import Constraint, ConstraintKind
from models.errors import RequestInvalid

MAX_SOURCE = 1 << 18
# The converter's time grows with the square of a grammar's size.
MAX_GRAMMAR = 1 << 15


def constraint_of(body: SharedFields) -> Constraint | None:
    """The one shape that a body asks for. Raises RequestInvalid, also where it asks for several."""
    readers: dict[str, Callable[[Any, str], Constraint | None]] = {
        "response_format": lambda value, _: _format(value),
        "json_schema": schema_of,
        "guided_json": schema_of,
        "grammar": _grammar,
        "guided_grammar": _grammar,
        "guided_regex": _regex,
        "guided_choice": _choice,
    }
    found: dict[str, Constraint] = {}
    for field, read in readers.items():
        value = getattr(body, field)
        constraint = None if value is None or value == "" else read(value, field)
        if constraint is not None:
            found[field] = constraint
    if len(found) > 1:
        raise RequestInvalid(f"Send one of {', '.join(found)}, not several.", list(found)[1])
    return next(iter(found.values()), None)


def _text(value: Any, path: str, most: int = MAX_SOURCE) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise RequestInvalid(f"{path} must be a string of at most {most} characters.", path)
    return value


def _grammar(value: Any, path: str) -> Constraint:
    return Constraint(ConstraintKind.GRAMMAR, _text(value, path, MAX_GRAMMAR))


def _regex(value: Any, path: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, _text(value, path))


def _choice(value: Any, path: str) -> Constraint:
    choices = cast(list[Any], value) if isinstance(value, list) else []
    if not choices or not all(isinstance(choice, str) and choice for choice in choices):
        raise RequestInvalid(f"{path} must be a list of strings that are not empty.", path)
    return Constraint(ConstraintKind.REGEX, "|".join(re.escape(choice) for choice in choices))


def _format(value: Any) -> Constraint | None:
    """`response_format`, as OpenAI, llama-server and others write it."""
    if not isinstance(value, dict):
        raise RequestInvalid("response_format must be an object.", "response_format")
    fields = cast(dict[str, Any], value)
    match fields.get("type"):
        case "text":
            return None
        case "json_object" if fields.get("schema") is None:
            return Constraint(ConstraintKind.JSON_OBJECT)
        case "json_object":
            return schema_of(fields["schema"], "response_format.schema")
        case "json_schema":
            holder = fields.get("json_schema")
            if isinstance(holder, dict):
                inner = cast(dict[str, Any], holder)
                return schema_of(inner.get("schema"), "response_format.json_schema.schema")
            if holder is None and "schema" in fields:
                return schema_of(fields["schema"], "response_format.schema")
            path = "response_format.json_schema"
            raise RequestInvalid(f"{path} must be an object with a schema.", path)
        case _:
            path = "response_format.type"
            raise RequestInvalid(f"{path} must be text, json_object or json_schema.", path)


def schema_of(schema: Any, path: str) -> Constraint:
    """A JSON schema found at `path`. Raises RequestInvalid."""
    if not isinstance(schema, dict):
        raise RequestInvalid(f"{path} must be a JSON schema (an object).", path)
    # The order of keys is kept: it is the order in which the answer's properties are written.
    try:
        source = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise RequestInvalid(f"{path} holds a number that is not finite.", path) from None
    return Constraint(ConstraintKind.JSON_SCHEMA, source)
