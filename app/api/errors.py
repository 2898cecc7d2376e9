"""From every error to one HTTP status and OpenAI's error object, in one place."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from models.errors import (
    ContextOverflow,
    DoesNotFit,
    EngineBusy,
    EngineFailed,
    ModelInvalid,
    ModelNotFound,
    RequestInvalid,
    RunnerError,
    RuntimeUnavailable,
    SettingsError,
)

logger = logging.getLogger("runner.http")

INVALID = "invalid_request_error"
SERVER = "server_error"
INTERNAL = "Something went wrong inside the server. Its log has the details."

# Faults that stay until a person acts. Agents repeat a 5xx dozens of times within seconds (Codex
# sends 30 requests in 26 s) whatever its headers say, so that these are none.
_PERMANENT: dict[type[RunnerError], str] = {
    DoesNotFit: "insufficient_memory",
    RuntimeUnavailable: "runtime_unavailable",
    ModelInvalid: "model_invalid",
    SettingsError: "setting_invalid",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as a client is told of it."""

    status: int
    message: str
    type: str = INVALID
    param: str | None = None
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    overflow: tuple[int, int] | None = None
    """Of a prompt that is too long: its tokens, and the limit."""

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": error}


STOPPING = Fault(503, "The server is stopping; ask again when it is back.", SERVER, code="stopping")


def fault_of(error: Exception) -> Fault:
    """What to tell a client; errors we did not expect keep their text to the log."""
    match error:
        case ContextOverflow(prompt_tokens=tokens, limit=limit):
            return Fault(
                400, error.message, INVALID, error.param, error.code, overflow=(tokens, limit)
            )
        case RequestInvalid():
            return Fault(400, error.message, INVALID, error.param, error.code)
        case ModelNotFound():
            return Fault(404, error.message, INVALID, "model", "model_not_found")
        case EngineBusy():
            wait = {"retry-after": str(max(1, error.retry_after))}
            return Fault(503, error.message, SERVER, None, "engine_busy", wait)
        case RunnerError():
            code = next((c for kind, c in _PERMANENT.items() if isinstance(error, kind)), None)
            if code is not None:
                return Fault(422, error.message, INVALID, "model", code)
            code = "engine_failed" if isinstance(error, EngineFailed) else None
            return Fault(500, error.message, SERVER, None, code, {"x-should-retry": "false"})
        case _:
            return Fault(500, INTERNAL, SERVER, None, "internal_error")


def invalid_body(error: ValidationError) -> RequestInvalid:
    """The first field that is wrong, by its dotted path, in plain words."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = dotted(first["loc"])
    if first["type"] == "missing":
        return RequestInvalid(f"{path} is required.", path)
    text = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return RequestInvalid(f"{path}: {text}.".replace("..", "."), path or None)


def dotted(location: Sequence[str | int]) -> str:
    """A field's path as it is named to clients: `messages.0.content`."""
    return ".".join(str(step) for step in location)


def respond(fault: Fault, path: str) -> JSONResponse:
    """An error as an HTTP reply, in the shape that clients of `path` know."""
    shape = next((s for start, s in SHAPES.items() if path.startswith(start)), Fault.body)
    return JSONResponse(shape(fault), fault.status, fault.headers)


def _messages_body(fault: Fault) -> dict[str, Any]:
    return {"type": "error", "error": messages_error(fault)}


# Anthropic's names (https://docs.anthropic.com/en/api/errors).
_MESSAGES_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def messages_error(fault: Fault) -> dict[str, Any]:
    """An error as Anthropic's dialect words it."""
    known = _MESSAGES_TYPES.get(fault.status)
    kind = known or ("api_error" if fault.status >= 500 else "invalid_request_error")
    message = fault.message
    if fault.overflow is not None:  # the sentence by which clients know that they have to compact
        tokens, limit = fault.overflow
        message = f"prompt is too long: {tokens} tokens > {limit} maximum"
    return {"type": kind, "message": message}


def _ollama_body(fault: Fault) -> dict[str, Any]:
    return {"error": fault.message}


# By the beginning of the path; OpenAI's shape is everybody else's.
SHAPES: dict[str, Callable[[Fault], dict[str, Any]]] = {
    "/v1/messages": _messages_body,
    "/api/": _ollama_body,
}


def install(app: FastAPI) -> None:
    """Answer every error in the one shape."""
    app.add_exception_handler(RunnerError, _runner_error)
    app.add_exception_handler(HTTPException, _http_error)


async def _runner_error(request: Request, error: Exception) -> JSONResponse:
    fault = fault_of(error)
    if fault.status in (422, 500):
        logger.warning("%s: %s", type(error).__name__, fault.message)
    if isinstance(error, ContextOverflow) and request.url.path.endswith("/v1/completions"):
        fault = Fault(fault.status, fault.message, fault.type, "prompt", fault.code)
    if isinstance(error, ContextOverflow) and request.url.path == "/v1/responses":
        fault = replace(fault, param="input")
    return respond(fault, request.url.path)


_PLAIN = {
    404: "There is no such address here: {method} {path}.",
    405: "{path} does not take {method}.",
}


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = str(error.detail)
    if plain := _PLAIN.get(error.status_code):
        message = plain.format(method=request.method, path=request.url.path)
    code = "not_found" if error.status_code == 404 else None
    fault = Fault(error.status_code, message, INVALID, None, code, dict(error.headers or {}))
    return respond(fault, request.url.path)
