"""A small hub for tests: real HTTP, large files on a second port, and faults to order."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

_PIECE = 16 * 1024


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came; `first_byte` is where its range began."""

    method: str
    path: str
    first_byte: int
    authorized: bool
    on_cdn: bool


@dataclass(slots=True)
class Faults:
    """What goes wrong. `drop_at` is a share of the file, `drops` how often (None: always); at the
    share `hold_at` the hub says `held` and sends no more until `release`."""

    drop_at: float | None = None
    hold_at: float | None = None
    held: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
    drops: int | None = None
    flip: bool = False
    ignore_range: bool = False
    status: int | None = None
    gone: set[str] = field(default_factory=set[str])
    private: set[str] = field(default_factory=set[str])
    gated: set[str] = field(default_factory=set[str])


class StubHub:
    """Repositories by name, each a table of files. Used as a context manager."""

    def __init__(self, repos: Mapping[str, Mapping[str, bytes]], **facts: Any) -> None:
        self.repos = {name: dict(files) for name, files in repos.items()}
        self.facts = facts
        self.faults = Faults()
        self.asked: list[Asked] = []
        self._front = _Server(self, on_cdn=False)
        self._cdn = _Server(self, on_cdn=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._front.server_port}"

    @property
    def cdn_url(self) -> str:
        return f"http://127.0.0.1:{self._cdn.server_port}"

    def commit(self, repo: str) -> str:
        listed = sorted((name, len(data)) for name, data in self.repos[repo].items())
        return hashlib.sha1(f"{repo}{listed}".encode()).hexdigest()

    def transfers(self, file: str) -> list[int]:
        """Where each GET of a file's content began."""
        return [a.first_byte for a in self.asked if a.on_cdn and a.path.endswith(file)]

    def __enter__(self) -> Self:
        for server in (self._front, self._cdn):
            server.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._front, self._cdn):
            server.shutdown()
            server.server_close()
            server.thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: StubHub, *, on_cdn: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub
        self.on_cdn = on_cdn
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> StubHub:
        assert isinstance(self.server, _Server)
        return self.server.hub

    def log_message(self, format: str, *args: object) -> None:
        """Tests read `asked` instead."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        path = unquote(urlsplit(self.path).path)
        match = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
        self.hub.asked.append(
            Asked(
                self.command,
                path,
                int(match[1]) if match else 0,
                "Authorization" in self.headers,
                self.server.on_cdn,
            )
        )
        parts = path.strip("/").split("/")
        if self.server.on_cdn:
            self._content("/".join(parts[:2]), "/".join(parts[2:]))
        elif parts[:2] == ["api", "models"] and len(parts) >= 4:
            self._listing("/".join(parts[2:4]))
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self._send(404)

    def _listing(self, repo: str) -> None:
        if self.hub.faults.status:
            self._send(self.hub.faults.status)
        elif repo not in self.hub.repos or repo in self.hub.faults.private:
            self._not_found()
        else:
            files = self.hub.repos[repo]
            answer = {
                "_id": "0",
                "id": repo,
                "sha": self.hub.commit(repo),
                "gated": "manual" if repo in self.hub.faults.gated else False,
                "tags": ["gguf", "license:apache-2.0"],
                "siblings": [_sibling(name, data) for name, data in files.items()],
                **self.hub.facts,
            }
            self._send(200, json.dumps(answer).encode(), X_HF_Warning="rate; Please log in.")

    def _resolve(self, repo: str, name: str) -> None:
        faults = self.hub.faults
        if repo not in self.hub.repos or repo in faults.private:
            self._not_found()
        elif repo in faults.gated:
            self._send(403 if "Authorization" in self.headers else 401, X_Error_Code="GatedRepo")
        elif name in faults.gone or name not in self.hub.repos[repo]:
            self._send(404, X_Error_Code="EntryNotFound")
        else:
            data = self.hub.repos[repo][name]
            if name.endswith(".gguf") or name.endswith(".safetensors"):
                sha = hashlib.sha256(data).hexdigest()
                self._send(
                    302,
                    Location=f"{self.hub.cdn_url}/{repo}/{name}",
                    X_Repo_Commit=self.hub.commit(repo),
                    X_Linked_Etag=f'"{sha}"',
                    X_Linked_Size=str(len(data)),
                )
            else:
                self._send(200, data, ETag=f'"{_blob_id(data)}"')

    def _content(self, repo: str, name: str) -> None:
        data, faults = self.hub.repos[repo][name], self.hub.faults
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start, end = 0, len(data)
        if match and not faults.ignore_range:
            start = int(match[1])
            end = min(int(match[2]) + 1, end) if match[2] else end
            if start >= len(data):
                self._send(416, Content_Range=f"bytes */{len(data)}")
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", '"cdn"')
        self.end_headers()
        if self.command != "HEAD":
            self._body(data, start, end, whole=end == len(data))

    def _body(self, data: bytes, start: int, end: int, *, whole: bool) -> None:
        faults = self.hub.faults
        if faults.flip:
            wrong = len(data) * 7 // 10
            data = data[:wrong] + bytes([data[wrong] ^ 1]) + data[wrong + 1 :]
        if whole and faults.drop_at is not None and faults.drops != 0:
            faults.drops = None if faults.drops is None else faults.drops - 1
            end = min(end, int(len(data) * faults.drop_at))
            self.close_connection = True
        pause = int(len(data) * faults.hold_at) if whole and faults.hold_at is not None else end
        for at in range(start, end, _PIECE):
            if at >= pause and not faults.release.is_set():
                faults.held.set()
                faults.release.wait(30)
            self.wfile.write(data[at : min(at + _PIECE, end)])

    def _not_found(self) -> None:
        status = 404 if "Authorization" in self.headers else 401
        self._send(status, X_Error_Code="RepoNotFound")

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _sibling(name: str, data: bytes) -> dict[str, Any]:
    sibling: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": _blob_id(data)}
    if name.endswith((".gguf", ".safetensors")):
        sha = hashlib.sha256(data).hexdigest()
        sibling["lfs"] = {"sha256": sha, "size": len(data), "pointerSize": 134}
    return sibling


def _blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
