"""A client of our own port, for the command line."""

import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import quote, urlsplit

import httpx

from app.address import host_name, is_loopback
from models.errors import RunnerError, ServerUnreachable

_PROBE_S = 1.0
_CONNECT_S = 5.0
_SILENCE_S = 60.0  # the server keeps a stream alive every few seconds


class LocalServer:
    """An OpenAI-compatible server, usually ours, at `base_url` (with or without `/v1`)."""

    def __init__(self, base_url: str, api_key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not host_name(parts.netloc):
            raise ServerUnreachable(
                f"{base_url} is not the address of a server, such as http://127.0.0.1:11411."
            )
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self.is_local = is_loopback(host_name(parts.netloc))
        # A proxy is for other machines: variables that are set for it must not capture loopback.
        self._trusts_env = not self.is_local

    @classmethod
    def identify(cls, base_url: str, api_key: str | None = None) -> dict[str, Any] | None:
        """The status of the runner server at an address, or None: nobody, or somebody else."""
        try:
            status = cls(base_url, api_key).status(_PROBE_S)
        except RunnerError:
            return None
        return status if status.get("server") == "runner" else None

    def status(self, within_s: float = _CONNECT_S) -> dict[str, Any]:
        """`GET /runner/status`. Raises ServerUnreachable or RunnerError."""
        with self._client(within_s) as client:
            reply = client.get("/runner/status")
            _check(reply)
            try:
                value = reply.json()
            except ValueError:
                value = None
            if not isinstance(value, dict):
                raise ServerUnreachable(f"{self.base_url} is not a runner server.")
            return cast(dict[str, Any], value)

    def models(self) -> list[dict[str, Any]]:
        """`GET /v1/models`: what can be asked for. Raises RunnerError."""
        with self._client(_CONNECT_S) as client:
            return self._listed(client.get("/v1/models")).get("data") or []

    def model(self, name: str) -> dict[str, Any]:
        """`GET /v1/models/NAME`: one model, by any of its names. Raises RunnerError."""
        with self._client(_CONNECT_S) as client:
            return self._listed(client.get(f"/v1/models/{quote(name)}"))

    def load(self, name: str) -> None:
        """Load a model, which may take minutes. Raises RunnerError."""
        with (
            self._client(_SILENCE_S) as client,
            client.stream("POST", "/api/generate", json={"model": name}) as reply,
        ):
            if reply.status_code != 200:
                reply.read()
                _check(reply)
            for line in filter(None, reply.iter_lines()):
                step: dict[str, Any] = json.loads(line)
                if error := step.get("error"):
                    raise RunnerError(str(error))
                if step.get("done"):
                    return
        raise RunnerError(f"{self.base_url} ended before {name} was loaded.")

    def chat(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of a streamed chat completion. Raises RunnerError."""
        with (
            self._client(_SILENCE_S) as client,
            client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as reply,
        ):
            if reply.status_code != 200:
                reply.read()
                _check(reply)
            for line in reply.iter_lines():
                if not line.startswith("data:"):
                    continue
                data = line[5:].strip()
                if data == "[DONE]":
                    return
                chunk = json.loads(data)
                if error := chunk.get("error"):
                    raise RunnerError(str(error.get("message", error)))
                yield chunk
        raise RunnerError(f"{self.base_url} ended the answer before it was complete.")

    def async_client(self, timeout: httpx.Timeout) -> httpx.AsyncClient:
        """For many requests at once. Raises ServerUnreachable."""
        try:
            return httpx.AsyncClient(
                base_url=self.base_url,
                headers=self._headers,
                timeout=timeout,
                trust_env=self._trusts_env,
                limits=httpx.Limits(max_connections=None),
            )
        except (httpx.InvalidURL, ImportError, ValueError) as error:
            raise ServerUnreachable(f"{self.base_url} cannot be used: {error}.") from error

    def _listed(self, reply: httpx.Response) -> dict[str, Any]:
        _check(reply)
        try:
            value = reply.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ServerUnreachable(f"{self.base_url} does not list models as OpenAI's API does.")
        return cast(dict[str, Any], value)

    @contextmanager
    def _client(self, timeout_s: float) -> Generator[httpx.Client]:
        timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))
        try:
            with httpx.Client(
                base_url=self.base_url,
                headers=self._headers,
                timeout=timeout,
                trust_env=self._trusts_env,
            ) as client:
                yield client
        except httpx.ConnectError as error:
            raise ServerUnreachable(
                f"No server answers at {self.base_url} ({error}). Start one with `runner serve`."
            ) from error
        except httpx.TimeoutException as error:
            raise ServerUnreachable(f"{self.base_url} did not answer in time.") from error
        except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as error:
            # ImportError, ValueError: a proxy variable names a scheme that cannot be used
            raise ServerUnreachable(f"{self.base_url} cannot be used: {error}.") from error


def _check(reply: httpx.Response) -> None:
    if reply.status_code == 200:
        return
    try:
        message = str(reply.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = f"{reply.url} answered with HTTP {reply.status_code}."
    raise RunnerError(message)
