"""What Ollama's clients see of the models here, and do with them: load, unload, pull, delete."""

import json
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app import library
from app.build import build_library
from app.settings import Settings
from models.address import HubAddress
from models.chat import Loading
from models.store import Store
from runtimes.base import LoadState
from tests.app.conftest import Served, serving, until
from tests.app.scripted import MODEL, ScriptedHost
from tests.hubserver import StubHub
from tests.tinygguf import LLAMA, tiny_gguf

Line = dict[str, Any]
FILE = "toy-Q4_K_M.gguf"
LONG = tiny_gguf(tensors=4, width=1024)  # longer than the plan's look at the header


async def said(served: Served, path: str, **fields: Any) -> list[Line]:
    reply = await served.http.post(path, json={"model": MODEL, **fields})
    assert reply.status_code == 200, reply.text
    return [json.loads(text) for text in reply.text.splitlines()]


# ---------------------------------------------------------------------- loading and unloading


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/api/chat", {"messages": []}), ("/api/generate", {"prompt": ""})],
)
async def test_without_a_prompt_the_model_is_loaded(
    served: Served, path: str, fields: Line
) -> None:
    served.host.load_script = (Loading(0.0), 0.02, Loading(1.0))
    (only,) = await said(served, path, **fields)
    assert (only["done"], only["done_reason"]) == (True, "load")
    assert (await said(served, path, stream=False, **fields))[0]["done_reason"] == "load"
    assert served.host.loads == [MODEL, MODEL]
    assert not served.host.requests


@pytest.mark.parametrize("at_once", [0, 0.0, "0", "0s", "0m"])
async def test_kept_for_no_time_it_is_unloaded(served: Served, at_once: Any) -> None:
    (only,) = await said(served, "/api/chat", messages=[], keep_alive=at_once)
    assert (only["done"], only["done_reason"]) == (True, "unload")
    fields = {"prompt": None, "keep_alive": at_once, "stream": False}
    (reply,) = await said(served, "/api/generate", **fields)
    assert (reply["response"], reply["done_reason"]) == ("", "unload")
    assert served.host.unloads == [MODEL, MODEL]


async def test_a_model_that_is_not_there_is_neither_loaded_nor_unloaded(served: Served) -> None:
    for keep_alive in (0, 60):
        body = {"model": "no", "keep_alive": keep_alive}
        reply = await served.http.post("/api/chat", json=body)
        assert reply.status_code == 404
        assert set(reply.json()) == {"error"}


# ---------------------------------------------------------------------- what there is


async def test_a_version_that_editors_take(served: Served) -> None:
    told = (await served.http.get("/api/version")).json()
    assert [int(part) for part in told["version"].split(".")] >= [0, 6, 4]
    assert told["runner"]
    for path in ("/", "/api/version", "/api/tags"):
        assert (await served.http.head(path)).status_code == 200


async def test_models_are_listed(served: Served) -> None:
    first, second = (await served.http.get("/api/tags")).json()["models"]
    assert (first["name"], first["model"], first["size"]) == (MODEL, MODEL, 1000)
    assert first["modified_at"] == "2023-11-14T22:13:20.000000Z"
    assert len(first["digest"]) == 64
    assert first["digest"] != second["digest"]
    assert first["details"]["format"] == "gguf"
    assert isinstance(first["details"]["families"], list)


async def test_those_in_memory_are_listed_with_their_end(served: Served) -> None:
    (only,) = (await served.http.get("/api/ps")).json()["models"]
    assert (only["name"], only["size"], only["context_length"]) == (MODEL, 2 * 1024**3, 4096)
    assert only["expires_at"].endswith("Z")
    assert only["size_vram"] == 0
    info = replace(served.host.infos[0], expires_in_s=None, memory={"kv": 5, "CUDA0": 7})
    served.host.infos[0] = info
    (only,) = (await served.http.get("/api/ps")).json()["models"]
    assert only["size_vram"] == 7
    served.host.infos[0] = replace(info, state=LoadState.ABSENT)
    assert (await served.http.get("/api/ps")).json() == {"models": []}


async def test_a_model_is_shown_with_what_it_can_do(served: Served, tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>{{ '</think>' }}"
    path = tmp_path / FILE
    path.write_bytes(tiny_gguf(metadata={**LLAMA, "tokenizer.chat_template": template}))
    served.host.files[MODEL] = path
    served.host.infos[0] = replace(served.host.infos[0], architecture="llama", thinks=True)
    for fields in ({"model": MODEL}, {"name": MODEL}):
        shown = (await served.http.post("/api/show", json=fields)).json()
        assert shown["template"] == template
        assert shown["license"] == "mit"
        assert shown["capabilities"] == ["completion", "tools", "thinking"]
        assert shown["details"]["parameter_size"] == "0.01M"
        facts = shown["model_info"]
        assert facts["general.architecture"] == "llama"
        # what a request may use, since clients plan by it, and not what the model was trained for
        assert facts["llama.context_length"] == 4096
    path.write_bytes(tiny_gguf())
    served.host.infos[0] = replace(served.host.infos[0], thinks=False)
    shown = (await served.http.post("/api/show", json={"model": MODEL})).json()
    assert shown["capabilities"] == ["completion", "tools"]


async def test_a_model_that_is_not_there_is_not_shown(served: Served) -> None:
    reply = await served.http.post("/api/show", json={"model": "no"})
    assert (reply.status_code, set(reply.json())) == (404, {"error"})
    reply = await served.http.post("/api/show", json={})
    assert (reply.status_code, reply.json()) == (400, {"error": "model is required."})


@pytest.mark.parametrize("path", ["copy", "create", "push"])
async def test_what_is_not_offered_says_so(served: Served, path: str) -> None:
    reply = await served.http.post(f"/api/{path}", json={"model": MODEL, "input": "x"})
    assert reply.status_code == 501
    assert reply.json()["error"].endswith(".")


# ---------------------------------------------------------------------- fetching and removing


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubHub]:
    with StubHub({"toy/one": {FILE: tiny_gguf()}, "toy/long": {FILE: LONG}}) as hub:
        address = HubAddress(hub.url, tmp_path / "hub")
        monkeypatch.setattr(library, "from_environment", lambda: address)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        yield hub


@pytest.fixture
async def beside_hub(hub: StubHub, tmp_path: Path) -> AsyncGenerator[Served]:
    async with serving(settings=Settings(port=0, models_dir=tmp_path / "models")) as served:
        yield served


def fetched(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "hub").rglob("*.gguf")]


async def test_a_model_is_pulled_with_progress(beside_hub: Served, tmp_path: Path) -> None:
    first, *progress, last = await said(beside_hub, "/api/pull", model="toy/long")
    assert first == {"status": "pulling manifest"}
    assert last == {"status": "success"}
    bars = [line for line in progress if "total" in line]
    assert bars
    assert {line["digest"][:7] for line in bars} == {"sha256:"}
    assert bars[-1]["completed"] == bars[-1]["total"] == len(LONG)
    assert fetched(tmp_path) == [FILE]


async def test_a_model_is_pulled_in_silence(beside_hub: Served, tmp_path: Path) -> None:
    assert await said(beside_hub, "/api/pull", name="toy/one", model=None, stream=False) == [
        {"status": "success"}
    ]
    assert fetched(tmp_path) == [FILE]


async def test_a_name_nobody_knows_is_the_last_line(beside_hub: Served, tmp_path: Path) -> None:
    for name, told in (("toy/none", "toy/none"), ("nonesuch:7b", "nonesuch")):
        *_, last = await said(beside_hub, "/api/pull", model=name)
        assert set(last) == {"error"}
        assert told in last["error"]
        reply = await beside_hub.http.post("/api/pull", json={"model": name, "stream": False})
        assert (reply.status_code, set(reply.json())) == (404, {"error"})
    assert not fetched(tmp_path)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "/nowhere", "../x.gguf", "a b", "a/b/c"])
async def test_what_is_no_name_is_refused_at_once(beside_hub: Served, name: str) -> None:
    reply = await beside_hub.http.post("/api/pull", json={"model": name})
    assert (reply.status_code, set(reply.json())) == (400, {"error"})


async def test_nothing_is_fetched_where_all_is_local() -> None:
    async with serving(settings=Settings(port=0, local_only=True)) as served:
        reply = await served.http.post("/api/pull", json={"model": "toy/one"})
    assert reply.status_code == 400
    assert "--local-only" in reply.json()["error"]


async def test_who_leaves_stops_the_download(
    beside_hub: Served, hub: StubHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.faults.hold_at = 0.5
    ended: list[type[BaseException] | None] = []
    download = library.download

    def watched(*arguments: Any) -> Path:
        try:
            return download(*arguments)
        except BaseException as error:
            ended.append(type(error))
            raise

    monkeypatch.setattr(library, "download", watched)
    body = {"model": "toy/long"}
    async with beside_hub.http.stream("POST", "/api/pull", json=body) as reply:
        async for text in reply.aiter_lines():
            if json.loads(text).get("completed"):
                break
    await until(hub.faults.held.is_set)
    hub.faults.release.set()
    await until(lambda: bool(ended))
    assert ended[0] is not None
    assert not issubclass(ended[0], OSError)
    hub.faults.hold_at = None
    *_, last = await said(beside_hub, "/api/pull", **body)
    assert last == {"status": "success"}
    # A look at the header each time, and one transfer from the beginning: what had come was kept.
    assert hub.transfers(FILE).count(0) == 3


async def test_a_silence_repeats_what_was_said_last(hub: StubHub, tmp_path: Path) -> None:
    hub.faults.hold_at = 0.5
    books = build_library(Settings(models_dir=tmp_path / "models"))
    news = books.pull(books.named("toy/long"), 0.05)
    came = 0
    async for item in news:
        came = came + 1 if item is None else 0
        if came == 3:
            break
    await news.aclose()
    hub.faults.release.set()


async def test_a_model_is_removed_once_nobody_uses_it(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "toy.gguf").write_bytes(tiny_gguf())
    card = next(card for card in Store(folder).list() if card.path.parent == folder)
    host = ScriptedHost()
    host.infos = [replace(host.infos[0], id=card.id)]
    host.files[card.id] = card.path
    async with serving(host, Settings(port=0, models_dir=folder)) as served:
        fields = {"model": card.id}
        reply = await served.http.request("DELETE", "/api/delete", json=fields)
        assert reply.status_code == 200, reply.text
        assert host.unloads == [card.id]
        assert not (folder / "toy.gguf").exists()
        reply = await served.http.request("DELETE", "/api/delete", json={"model": "no"})
        assert (reply.status_code, set(reply.json())) == (404, {"error"})
