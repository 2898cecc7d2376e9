"""Proxies: used where they should be, never for this machine, and never with a traceback."""

from pathlib import Path

import pytest

from models.address import HubAddress
from models.errors import HubUnreachable
from models.fit import Memory
from models.hub import plan
from models.names import parse
from models.wire import is_loopback, proxy_for, unreachable

DEAD = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{scheme}_proxy", raising=False)
        monkeypatch.delenv(f"{scheme}_proxy".upper(), raising=False)


def test_without_variables_there_is_no_proxy() -> None:
    assert proxy_for("https", "huggingface.co") is None


def test_the_schemes_own_variable_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://all:1")
    assert proxy_for("https", "huggingface.co") == "http://all:1"
    monkeypatch.setenv("HTTPS_PROXY", "own:2")
    assert proxy_for("https", "huggingface.co") == "http://own:2"
    assert proxy_for("http", "huggingface.co") == "http://all:1"


def test_no_proxy_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", DEAD)
    monkeypatch.setenv("NO_PROXY", ".co,example.org")
    assert proxy_for("https", "huggingface.co") is None
    assert proxy_for("https", "huggingface.com") == DEAD


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "a.localhost", "::1"])
def test_this_machine_is_never_reached_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", DEAD)
    assert is_loopback(host)
    assert proxy_for("http", host) is None


def test_an_unused_socks_proxy_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", DEAD)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    assert proxy_for("https", "huggingface.co") == DEAD


def test_a_socks_proxy_without_its_package_is_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("models.wire.find_spec", lambda name: None)
    monkeypatch.setenv("ALL_PROXY", "socks5://me:secret@127.0.0.1:9")
    with pytest.raises(HubUnreachable) as caught:
        proxy_for("https", "huggingface.co")
    assert "ALL_PROXY names the SOCKS proxy socks5://127.0.0.1:9" in caught.value.message
    assert "pip install socksio" in caught.value.message
    assert "secret" not in caught.value.message


def test_a_dead_proxy_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    address = HubAddress("https://huggingface.co", tmp_path)
    with pytest.raises(HubUnreachable) as caught:
        plan(parse("nobody/nothing"), address, Memory(1, 1))
    message = caught.value.message
    assert message.startswith("Cannot connect to huggingface.co through the proxy http://127.0.0.1")
    assert "(from HTTPS_PROXY)" in message
    assert "secret" not in message


def test_a_proxy_of_an_unknown_kind_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "ftp://127.0.0.1:9")
    address = HubAddress("https://huggingface.co", tmp_path)
    with pytest.raises(HubUnreachable, match=r"The proxy ftp://127\.0\.0\.1:9 cannot be used"):
        plan(parse("nobody/nothing"), address, Memory(1, 1))


def test_a_failure_is_told_on_one_short_line() -> None:
    told = unreachable(OSError("first\nsecond " + "x" * 900), "https://hub.example/api").message
    assert "\n" not in told
    assert len(told) < 300
