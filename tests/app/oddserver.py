"""Somebody else's chat server on a real socket: it answers as a test says, well or badly."""

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

MODEL = "other-model"


def event(data: dict[str, Any] | str) -> bytes:
    """A server-sent event."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def text(*pieces: str, finish: str | None = "stop") -> list[bytes]:
    """Chunks that carry these pieces, and one that says why the answer ended."""
    chunks = [event({"choices": [{"index": 0, "delta": {"content": piece}}]}) for piece in pieces]
    if finish:
        chunks.append(event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
    return chunks


def usage(prompt: int, output: int, **details: int) -> bytes:
    """The last chunk: what the answer cost."""
    told = {"prompt_tokens": prompt, "completion_tokens": output}
    more = {"prompt_tokens_details": details} if details else {}
    return event({"choices": [], "usage": {**told, **more}})


def plain(body: dict[str, Any]) -> Iterable[bytes]:
    """A server that does everything right."""
    return [*text("one ", "two"), usage(10, 2, cached_tokens=5), event("[DONE]")]


@dataclass
class Refusal:
    """An HTTP status and a body instead of an answer."""

    status: int
    body: str


Answer = Callable[[dict[str, Any]], "Iterable[bytes] | Refusal"]


@dataclass
class OddServer:
    """Runs between `with` and its end."""

    answer: Answer = plain
    listed: tuple[dict[str, Any], ...] | None = ({"id": MODEL},)
    """What `GET /v1/models` tells; None: there is no such path."""
    bodies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: list[str | None] = field(default_factory=list[str | None])
    log: list[str] = field(default_factory=list[str])
    """`name` for each chat request; several servers may share one."""
    name: str = "odd"

    def __enter__(self) -> Self:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._list(self)

            def do_POST(self) -> None:
                outer._chat(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()  # waits for the threads of requests
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def asked(self) -> list[dict[str, Any]]:
        """The bodies after the warm-up."""
        return [body for body in self.bodies if "Say hello." not in json.dumps(body)]

    def _list(self, http: BaseHTTPRequestHandler) -> None:
        if http.path != "/v1/models" or self.listed is None:
            _send(http, 404, "text/plain", b"nothing here")
            return
        _send(http, 200, "application/json", json.dumps({"data": self.listed}).encode())

    def _chat(self, http: BaseHTTPRequestHandler) -> None:
        body = json.loads(http.rfile.read(int(http.headers["content-length"])))
        self.bodies.append(body)
        self.keys.append(http.headers.get("authorization"))
        self.log.append(self.name)
        answer = self.answer(body)
        if isinstance(answer, Refusal):
            _send(http, answer.status, "application/json", answer.body.encode())
            return
        http.send_response(200)
        http.send_header("content-type", "text/event-stream")
        http.end_headers()  # HTTP/1.0: the body ends where the connection does
        try:
            for piece in answer:
                http.wfile.write(piece)
                http.wfile.flush()
        except OSError:
            pass  # the client has left


def _send(http: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
    http.send_response(status)
    http.send_header("content-type", kind)
    http.send_header("content-length", str(len(body)))
    http.end_headers()
    http.wfile.write(body)
