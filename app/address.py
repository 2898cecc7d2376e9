"""What a host name means, and under which URL this machine reaches its own server."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without a port, can only mean this machine."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_name(authority: str) -> str:
    """`[::1]:80` to `::1`: the host of a Host header or of a URL's network part, or empty."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def local_url(host: str, port: int) -> str:
    """The URL under which this machine's own programs reach a server bound to `host`."""
    name = host.strip("[]")
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
