"""The API in OpenAPI's words, from the fields that the routes themselves read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from app.api.body import Body, Reads
from app.version import version

JSON = dict[str, Any]
_REF = "#/components/schemas/{model}"
_JSON = "application/json"
_EVENTS = "text/event-stream"
_LINES = "application/x-ndjson"


class ErrorFields(BaseModel):
    """What OpenAI's clients are told of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(BaseModel):
    """An error, in OpenAI's shape."""

    error: ErrorFields


class MessagesErrorFields(BaseModel):
    """What Anthropic's clients are told of an error."""

    type: str
    message: str


class MessagesError(BaseModel):
    """An error, in Anthropic's shape."""

    type: str
    error: MessagesErrorFields


class OllamaError(BaseModel):
    """An error, in Ollama's shape."""

    error: str


ERRORS: dict[str, type[BaseModel]] = {"/v1/messages": MessagesError, "/api/": OllamaError}
"""By the beginning of the path; OpenAI's shape is everybody else's."""

_TAGS = {
    "/v1/messages": "Anthropic",
    "/v1/": "OpenAI",
    "/api/": "Ollama",
    "/tokenize": "Tokens",
    "/detokenize": "Tokens",
    "/tokenizer_info": "Tokens",
}

_ABOUT = """\
One engine behind the dialects of OpenAI, Anthropic and Ollama. Fields that are not listed are
ignored, `null` is the same as leaving a field out, and a wrong value is an error that names the
field. Errors have the shape of their dialect. 501 marks what is not served here; 503 means that a
model is loading or the queue is full: ask again after `retry-after` seconds."""


def error_of(path: str) -> type[BaseModel]:
    """The shape of errors of a path."""
    return next((kind for start, kind in ERRORS.items() if path.startswith(start)), Error)


def describe(served: Iterable[BaseRoute]) -> JSON:
    """The OpenAPI document of these routes."""
    routes = [route for route in served if isinstance(route, APIRoute)]
    document = get_openapi(title="runner", version=version(), description=_ABOUT, routes=routes)
    bodies = {kind for route in routes if (kind := body_of(route)) is not None}
    kinds = sorted(bodies | {Error, *ERRORS.values()}, key=lambda kind: kind.__name__)
    refs, defs = models_json_schema([(kind, "validation") for kind in kinds], ref_template=_REF)
    named = {kind: refs[(kind, "validation")] for kind in kinds}
    for route in routes:
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            _complete(operation, route, method, named)
    document["components"] = {
        "schemas": _plain(defs["$defs"]),
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        },
    }
    document["security"] = [{}, {"bearer": []}, {"key": []}]
    return document


def body_of(route: APIRoute) -> type[Body] | None:
    """The fields that a route reads its body into."""
    for needed in route.dependant.dependencies:
        if isinstance(needed.call, Reads):
            return cast("Reads[Body]", needed.call).kind
    return None


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, JSON]]:
    """Every operation: method, path, and what is told of it."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


# Bounds that pydantic leaves in its own words where a number is read in two steps.
_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}


def _plain(schema: Any) -> Any:
    """A schema in JSON Schema's words alone; the titles, which repeat the names, are left out."""
    if isinstance(schema, list):
        return [_plain(item) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast(JSON, schema)
    kept = {key: value for key, value in fields.items() if not _is_title(key, value)}
    return {_BOUNDS.get(key, key): _plain(value) for key, value in kept.items()}


def _is_title(key: str, value: Any) -> bool:
    return key == "title" and isinstance(value, str)


def _complete(
    operation: JSON, route: APIRoute, method: str, named: Mapping[type[BaseModel], Any]
) -> None:
    path = route.path_format
    operation["tags"] = [
        next((t for start, t in _TAGS.items() if path.startswith(start)), "Server")
    ]
    operation["operationId"] = re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_")
    kind = body_of(route)
    if kind is not None:
        content = {_JSON: {"schema": named[kind]}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = {
        "200": {"description": "The answer", "content": _answers(path, kind)},
        "default": {
            "description": "An error",
            "content": {_JSON: {"schema": named[error_of(path)]}},
        },
    }


def _answers(path: str, kind: type[Body] | None) -> JSON:
    answers: JSON = {_JSON: {"schema": {"type": "object"}}}
    if kind is not None and "stream" in kind.model_fields:
        streamed = _LINES if path.startswith("/api/") else _EVENTS
        answers[streamed] = {"schema": {"type": "string"}}
    return answers
