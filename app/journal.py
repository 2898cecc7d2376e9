"""A line a request in the log, an id on every reply, and the last net under errors."""

import asyncio
import logging
import secrets
import sys
import time
from typing import Any, cast

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import STOPPING, fault_of, respond
from app.settings import LogLevel

logger = logging.getLogger("runner.http")

CLIENT_LEFT = 499
_QUIET = {"/health", "/metrics"}  # polled all day


class Journal:
    """Writes method, path, status, time and model; never a word of a prompt, a query or a key."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        request_id = f"req_{secrets.token_hex(8)}"
        status = CLIENT_LEFT

        async def wrapped(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, wrapped)
        except asyncio.CancelledError:
            # Only a server that stops cancels here; this task ends with the next lines anyway.
            logger.warning("%s was cut by the shutdown", request_id)
            if status == CLIENT_LEFT:
                await respond(STOPPING, scope["path"])(scope, receive, wrapped)
        except Exception:
            logger.exception("%s failed unexpectedly", request_id)
            if status == CLIENT_LEFT:
                await respond(fault_of(RuntimeError()), scope["path"])(scope, receive, wrapped)
        finally:
            level = logging.DEBUG if scope["path"] in _QUIET else logging.INFO
            took_ms = (time.monotonic() - began) * 1000
            logger.log(level, "%s", _line(scope, status, took_ms, request_id))


def _line(scope: Scope, status: int, took_ms: float, request_id: str) -> str:
    path = cast(bytes, scope.get("raw_path") or b"?").decode("ascii", "replace")[:200]
    state = cast(dict[str, Any], scope.get("state") or {})
    model = str(state.get("model", ""))[:100]
    model = f" model={model if model.isprintable() else ascii(model)}" if model else ""
    return f"{scope['method']} {path} {status} {took_ms:.0f}ms{model} id={request_id}"


class OneEntry(logging.Formatter):
    """Nothing in a message passes for an entry of its own: names and errors hold what clients
    sent."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        lines = text.splitlines() or [""]
        return "\n    ".join("".join(map(_shown, line)) for line in lines)


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else ascii(letter)[1:-1]


def configure_logging(level: LogLevel) -> None:
    """Our own lines to stderr at `level`; those of libraries only where they warn."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneEntry("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("runner").setLevel(level.upper())
    # Every error of ours is caught and told above; what is left there is said twice, with a trace.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
