"""Who may talk to the port: Host, Origin, key and size are checked before anything is read."""

import asyncio
import contextlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.address import host_name, is_loopback
from app.api.errors import INVALID, Fault, respond

MAX_BODY_BYTES = 64 * 1024 * 1024
_DRAIN_S = 10.0
# For load balancers and people, and without anything of this machine.
_OPEN_PATHS = {"/health", "/", "/docs", "/openapi.json"}
_TOO_LARGE = f"The body is larger than {MAX_BODY_BYTES // 1024**2} MiB."


class Guard:
    """Refuses what does not come from this machine's own programs or a holder of the key.

    A page in any browser can reach a loopback port, directly or by rebinding its own name to it; it
    can fake neither the Host nor the Origin header."""

    def __init__(self, app: ASGIApp, *, bind: str, api_key: str | None) -> None:
        self._app = app
        self._bind = bind.strip("[]").lower()
        self._checks_host = is_loopback(bind)
        self._key = api_key.encode() if api_key else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if fault := self._refusal(headers, origin):
            await respond(fault, scope["path"])(scope, receive, send)
            return
        if origin:
            send = _with_cors(send, origin)
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await Response(status_code=204, headers=_PREFLIGHT)(scope, receive, send)
                return
        if fault := self._locked(headers, scope["path"]):
            await respond(fault, scope["path"])(scope, receive, send)
        elif _announced(headers) > MAX_BODY_BYTES:
            # A client that is still sending would see a reset connection instead of the answer.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await _drain(receive)
            fault = Fault(413, _TOO_LARGE, code="request_too_large")
            await respond(fault, scope["path"])(scope, receive, send)
        else:
            await self._app(scope, _limited(receive), send)

    def _refusal(self, headers: Headers, origin: str | None) -> Fault | None:
        authority = headers.get("host", "")
        name = host_name(authority)
        if self._checks_host and not (is_loopback(name) or name == self._bind):
            return Fault(403, "The Host header does not name this machine.", code="host_denied")
        if origin is not None and not _own_origin(origin, authority):
            return Fault(403, "Requests from other web pages are denied.", code="origin_denied")
        return None

    def _locked(self, headers: Headers, path: str) -> Fault | None:
        if self._key is None or path in _OPEN_PATHS:
            return None
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        named = hmac.compare_digest(headers.get("x-api-key", "").encode(), self._key)
        borne = hmac.compare_digest(bearer.strip().encode(), self._key)
        if named or (borne and scheme.lower() == "bearer"):
            return None
        text = "A key is required: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`."
        scheme_header = {"www-authenticate": "Bearer"}
        return Fault(401, text, INVALID, None, "invalid_api_key", scheme_header)


_PREFLIGHT: Mapping[str, str] = {
    "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
    "access-control-allow-headers": "*, authorization",
    "access-control-max-age": "600",
}


def _own_origin(origin: str, authority: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return False
    return is_loopback(host_name(parts.netloc)) or parts.netloc == authority


def _with_cors(send: Send, origin: str) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = "x-request-id"
            headers.add_vary_header("origin")
        await send(message)

    return wrapped


def _announced(headers: Headers) -> int:
    length = headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


def _limited(receive: Receive) -> Receive:
    taken = 0

    async def wrapped() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY_BYTES:
            raise HTTPException(413, _TOO_LARGE)
        return message

    return wrapped


async def _drain(receive: Receive) -> None:
    left = 4 * MAX_BODY_BYTES
    while left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body"):
            return
