"""The port itself: who may use it, what it answers to nonsense, and what it tells about itself."""

import dataclasses
import socket

import httpx
import pytest

from app.guard import MAX_BODY_BYTES
from app.server import bind, check_exposure
from app.settings import Settings
from models.errors import SettingsError
from tests.app.conftest import Served, chat_body, serving
from tests.app.scripted import MODEL, ScriptedHost

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:1", "[::1]:80", "[::1]"])
async def test_a_host_of_this_machine_may_ask(served: Served, host: str) -> None:
    assert (await served.http.get("/v1/models", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "[::1",
        "a@localhost.x",
    ],
)
async def test_a_foreign_host_is_denied(served: Served, host: str) -> None:
    for path in ("/v1/models", "/", "/health"):
        reply = await served.http.get(path, headers={"host": host})
        assert reply.status_code == 403
        assert reply.json()["error"]["code"] == "host_denied"


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "file://", "https://localhost.x"]
)
async def test_a_foreign_page_is_denied(served: Served, origin: str) -> None:
    reply = await served.http.post(CHAT, json=chat_body(), headers={"origin": origin})
    assert reply.status_code == 403
    assert "access-control-allow-origin" not in reply.headers
    assert not served.host.requests


async def test_a_page_of_this_machine_may_ask(served: Served) -> None:
    origin = "http://localhost:3000"
    asks = {"origin": origin, "access-control-request-method": "POST"}
    before = await served.http.options(CHAT, headers=asks)
    assert before.status_code == 204
    assert before.headers["access-control-allow-origin"] == origin
    reply = await served.http.post(CHAT, json=chat_body(), headers={"origin": origin})
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == origin
    assert "access-control-allow-credentials" not in reply.headers


async def test_a_key_is_taken_in_both_headers_and_checked() -> None:
    async with serving(settings=Settings(api_key="s3cret")) as served:
        for headers in ({"authorization": "Bearer s3cret"}, {"x-api-key": "s3cret"}):
            assert (await served.http.get("/v1/models", headers=headers)).status_code == 200
        wrong: list[dict[str, str]] = [
            {},
            {"authorization": "Bearer wrong"},
            {"authorization": "Basic s3cret"},
            {"x-api-key": "s3cre"},
            {"x-api-key": ""},
        ]
        for headers in wrong:
            for path in ("/v1/models", "/metrics", "/runner/status", "/nowhere"):
                reply = await served.http.get(path, headers=headers)
                assert reply.status_code == 401, path
                assert reply.json()["error"]["code"] == "invalid_api_key"
        assert (await served.http.get("/health")).status_code == 200
        non_ascii = {b"x-api-key": "ü".encode()}
        assert (await served.http.get("/v1/models", headers=non_ascii)).status_code == 401


async def test_no_key_means_any_key_will_do(served: Served) -> None:
    headers = {"authorization": "Bearer whatever"}
    assert (await served.http.get("/v1/models", headers=headers)).status_code == 200


def test_others_need_a_key() -> None:
    check_exposure(Settings(host="::1"))
    check_exposure(Settings(host="0.0.0.0", api_key="k"))
    for host in ("0.0.0.0", "::", "192.168.0.7", "box.lan"):
        with pytest.raises(SettingsError, match="--api-key"):
            check_exposure(Settings(host=host))


async def test_nonsense_gets_a_json_error(served: Served) -> None:
    cases: list[tuple[str, str, bytes, str, int]] = [
        ("GET", "/nowhere", b"", "", 404),
        ("GET", CHAT, b"", "", 405),
        ("DELETE", "/v1/models", b"", "", 405),
        ("POST", "/v1/models/", b"{}", "application/json", 405),
        ("POST", CHAT, b"{", "application/json", 400),
        ("POST", CHAT, b"", "application/json", 400),
        ("POST", CHAT, b"\xff\xfe", "application/json", 400),
        ("POST", CHAT, b"[1]", "application/json", 400),
        ("POST", CHAT, b"null", "application/json; charset=utf-8", 400),
        ("POST", CHAT, b"[" * 100_000, "application/json", 400),
        ("POST", CHAT, b'{"a":' * 500 + b"1" + b"}" * 500, "application/json", 400),
        ("POST", CHAT, b'{"n":' + b"9" * 5000 + b"}", "application/json", 400),
        ("POST", CHAT, b'{"model":"\\ud800","messages":[]}', "application/json", 400),
        ("POST", CHAT, b"{}", "text/plain", 415),
        ("POST", CHAT, b"a=1", "application/x-www-form-urlencoded", 415),
        ("POST", CHAT, b"--x--", "multipart/form-data; boundary=x", 415),
    ]
    for method, path, content, kind, status in cases:
        headers = {"content-type": kind} if kind else {}
        reply = await served.http.request(method, path, content=content, headers=headers)
        assert reply.status_code == status, (method, path, content[:20], reply.text)
        error = reply.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"]
        assert set(error) == {"message", "type", "param", "code"}
        assert reply.headers["x-request-id"].startswith("req_")
        assert "Traceback" not in reply.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_are_none_are_refused(served: Served, number: str) -> None:
    body = f'{{"model":"{MODEL}","messages":[],"temperature":{number}}}'
    reply = await served.http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "temperature"
    format = f'{{"type":"json_schema","schema":{{"minimum":{number}}}}}'
    user = '[{"role":"user","content":""}]'
    body = f'{{"model":"{MODEL}","messages":{user},"response_format":{format}}}'
    reply = await served.http.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert reply.json()["error"]["param"] == "response_format.schema"


async def test_a_body_without_a_type_is_read_as_json(served: Served) -> None:
    body = httpx.Request("POST", served.url, json=chat_body()).content
    reply = await served.http.post(CHAT, content=body)
    assert reply.status_code == 200


async def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    piece = b" " * (1024 * 1024)

    async def endless():
        for _ in range(MAX_BODY_BYTES // len(piece) + 2):
            yield piece

    headers = {"content-type": "application/json"}
    reply = await served.http.post(CHAT, content=endless(), headers=headers)
    assert reply.status_code == 413
    whole = b" " * (MAX_BODY_BYTES + 1)
    reply = await served.http.post(CHAT, content=whole, headers=headers)
    assert reply.status_code == 413
    assert reply.json()["error"]["code"] == "request_too_large"


async def test_models_tell_their_window(served: Served) -> None:
    listed = (await served.http.get("/v1/models")).json()
    assert listed["object"] == "list"
    first, second = listed["data"]
    assert (first["id"], first["object"], first["created"]) == (MODEL, "model", 1700000000)
    assert first["context_length"] == first["max_model_len"] == 4096
    assert first["trained_context_length"] == 32768
    assert (first["state"], second["state"]) == ("ready", "absent")
    assert first["capabilities"] == ["completion", "tools"]
    assert second["context_length"] == 8192
    assert (await served.http.get("/v1/models/org/other:Q4_K_M")).json() == second
    missing = await served.http.get("/v1/models/no/such")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_models_are_listed_in_anthropic_s_shape_for_its_clients() -> None:
    host = ScriptedHost()
    host.infos[1] = dataclasses.replace(host.infos[1], thinks=True)
    async with serving(host) as served:
        asks = {"anthropic-version": "2023-06-01"}
        listed = (await served.http.get("/v1/models", headers=asks)).json()
        one = (await served.http.get(f"/v1/models/{MODEL}", headers=asks)).json()
        plain = (await served.http.get("/v1/models")).json()["data"]
    assert listed["data"][0] == one
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (
        False,
        MODEL,
        host.infos[1].id,
    )
    assert (one["type"], one["id"], one["max_input_tokens"]) == ("model", MODEL, 4096)
    assert one["created_at"] == "2023-11-14T22:13:20+00:00"
    assert plain[1]["capabilities"] == ["completion", "tools", "thinking"]


async def test_health_follows_loading(served: Served) -> None:
    assert (await served.http.get("/health")).json() == {"status": "ok"}
    served.host.busy = True
    reply = await served.http.get("/health")
    assert (reply.status_code, reply.json()) == (503, {"status": "loading"})


async def test_metrics_are_prometheus_text(served: Served) -> None:
    reply = await served.http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    lines = reply.text.splitlines()
    assert f'runner_prompt_rows_total{{model="{MODEL}"}} 11.0' in lines
    assert f'runner_cells{{model="{MODEL}"}} 4096.0' in lines
    for name in ("decode_rows_total", "steps_total", "requests_total", "cancelled_total"):
        assert f"runner_{name}{{" in reply.text
    for name in ("evictions_total", "preemptions_total", "running", "waiting", "cells_used"):
        assert f"runner_{name}{{" in reply.text


async def test_status_tells_what_is_loaded(served: Served) -> None:
    status = (await served.http.get("/runner/status")).json()
    assert status["server"] == "runner"
    assert status["pid"] > 0
    (model,) = status["models"]
    assert (model["id"], model["running"], model["expires_in_s"]) == (MODEL, 1, 61.0)


async def test_the_root_says_that_it_runs(served: Served) -> None:
    assert "runner is running" in (await served.http.get("/")).text


def test_a_port_in_use_is_told_in_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"port {port}: .*--port"):
            bind("127.0.0.1", port)


async def test_a_port_in_use_by_us_says_so(served: Served) -> None:
    import asyncio

    port = int(served.url.rpartition(":")[2])
    with pytest.raises(SettingsError, match="a runner server \\(pid"):
        await asyncio.to_thread(bind, "127.0.0.1", port)


def test_a_host_that_is_not_ours_is_told() -> None:
    with pytest.raises(SettingsError, match="not-a-host"):
        bind("not-a-host.invalid", 0)


def test_a_key_never_shows_in_the_settings() -> None:
    assert "s3cret" not in repr(dataclasses.replace(Settings(), api_key="s3cret"))
