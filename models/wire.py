"""Requests to the hub: proxies done right, and every refusal in one clear line."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from ipaddress import ip_address
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from models.address import HubAddress
from models.errors import (
    FilesMissing,
    GatedRepo,
    HubError,
    HubUnreachable,
    RepoNotFound,
    Unauthorized,
)

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 10.0
READ_TIMEOUT_S = 30.0
_TOKEN = "HF_TOKEN or `hf auth login`"


def open_client() -> "httpx.Client":
    """Our own client for file transfers."""
    import httpx

    return cast("httpx.Client", _client(httpx))


def install_for_listing() -> ModuleType:
    """Make huggingface_hub's requests go the same way; return the HTTP module it uses, which is
    httpx or, from 2.0 on, httpx2."""
    import importlib

    from huggingface_hub import set_client_factory
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # its hints would stand between our own lines
    base = HfHubHTTPError.__mro__[1]
    http = importlib.import_module(base.__module__.partition(".")[0])
    set_client_factory(lambda: _client(http))
    return http


def _client(http: Any) -> Any:
    return http.Client(
        transport=_Routes(http),
        follow_redirects=True,
        timeout=http.Timeout(READ_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
    )


class _Routes:
    """A transport that sends each request through the proxy its address calls for, or straight
    there. httpx's own choice also builds the proxies it will not use, and fails on a SOCKS one."""

    def __init__(self, http: Any) -> None:
        self._http = http
        self._ways: dict[str | None, Any] = {}

    def handle_request(self, request: Any) -> Any:
        proxy = proxy_for(request.url.scheme, request.url.host)
        if proxy not in self._ways:
            try:
                self._ways[proxy] = self._http.HTTPTransport(proxy=proxy)
            except (ValueError, ImportError, self._http.InvalidURL) as error:
                raise HubUnreachable(
                    f"The proxy {_without_password(proxy or '')} cannot be used: {_line(error)}"
                ) from error
        return self._ways[proxy].handle_request(request)

    def close(self) -> None:
        for way in self._ways.values():
            way.close()
        self._ways.clear()

    def __enter__(self) -> "_Routes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine itself."""
    host = host.strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(scheme: str, host: str) -> str | None:
    """The proxy that the environment names for this address; never one for this machine itself.
    Raises HubUnreachable for a SOCKS proxy without the package that speaks to it."""
    if is_loopback(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if proxy.lower().startswith("socks") and find_spec("socksio") is None:
        raise HubUnreachable(
            f"{_variable(scheme)} names the SOCKS proxy {_without_password(proxy)}, but the "
            "package socksio, which speaks to it, is missing: `pip install socksio`, or set "
            f"{scheme.upper()}_PROXY to an HTTP proxy."
        )
    return proxy


def _variable(scheme: str) -> str:
    names = (f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    return next((name for name in names if os.environ.get(name)), "The system")


def _without_password(proxy: str) -> str:
    head, at, rest = proxy.rpartition("@")
    return f"{head.partition('://')[0]}://{rest}" if at else proxy


def unreachable(error: Exception, url: str) -> HubUnreachable:
    """What to say of a connection that failed."""
    parts = urlsplit(url)
    host = parts.hostname or url
    why = _line(error)
    try:
        proxy = proxy_for(parts.scheme, host)
    except HubUnreachable as known:
        return known
    if proxy:
        return HubUnreachable(
            f"Cannot connect to {host} through the proxy {_without_password(proxy)} "
            f"(from {_variable(parts.scheme)}): {why}."
        )
    return HubUnreachable(
        f"Cannot connect to {parts.netloc}: {why}. Is the network up? "
        "(`runner pull smollm2:135m` needs no hub.)"
    )


def refusal(
    status: int, headers: Mapping[str, str], repo: str, address: HubAddress, file: str = ""
) -> HubError:
    """What to say of an answer that is no success."""
    code, said = headers.get("x-error-code", ""), headers.get("x-error-message", "")
    page = address.page(repo)
    if code == "GatedRepo" or (status == 403 and "gated" in said.lower()):
        return _gated(repo, page, address.token)
    if status == 401 and address.token and code != "RepoNotFound":
        return Unauthorized(f"The hub does not accept the token (from {_TOKEN}). See {page}")
    if code == "EntryNotFound" or (status == 404 and file and code != "RepoNotFound"):
        return FilesMissing(f"{repo} lists the file {file} but does not have it. See {page}")
    if code == "RevisionNotFound":
        return RepoNotFound(f"{repo} has no such revision. See {page}")
    if status in (401, 404) or code == "RepoNotFound":
        access = (
            "the token that is set has no access to it"
            if address.token
            else f"it is private and wants a token ({_TOKEN})"
        )
        return RepoNotFound(f"{repo} was not found, or {access}. Its page would be {page}")
    if status == 403:
        return Unauthorized(f"The hub forbids access to {repo}: {_line(said)} See {page}")
    if status == 429:
        return HubUnreachable(f"The hub has had too many requests; wait a little, or set {_TOKEN}.")
    if status >= 500:
        return HubUnreachable(f"The hub has a fault of its own (HTTP {status}); try again later.")
    return HubError(f"The hub answered {page} with HTTP {status}. {_line(said)}".strip())


def _gated(repo: str, page: str, token: str | None) -> HubError:
    if not token:
        return Unauthorized(
            f"{repo} is gated: accept its licence at {page} and give a token with {_TOKEN}."
        )
    return GatedRepo(
        f"{repo} is gated, and the account of this token has not accepted its licence or is still "
        f"waiting for access: see {page}"
    )


def _line(error: object) -> str:
    """The error's text on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:199]}…"
