"""Which models the port offers: installed ones by name, and no files by path."""

from pathlib import Path

import numpy as np
import pytest

from app.api.models import capabilities_of
from app.build import Installed, build_host
from app.settings import load_settings
from models.card import Origin
from models.chat import RawPrompt, Request
from models.discover import Places
from models.errors import ModelNotFound, RequestInvalid
from models.store import Store
from tests.weights import write_model


@pytest.fixture
def store(tmp_path: Path) -> Store:
    nowhere = tmp_path / "nowhere"
    return Store(tmp_path / "models", Places(nowhere, (nowhere,), (nowhere,), nowhere))


def test_a_client_cannot_name_a_file(store: Store, tmp_path: Path) -> None:
    path = write_model(tmp_path / "secret.gguf", "llama")
    installed = Installed(store)
    for name in (str(path), f"file://{path}", "../secret.gguf", str(tmp_path / "absent.gguf")):
        with pytest.raises(ModelNotFound):
            installed.find(name)


def test_a_file_the_owner_named_is_served_under_its_id(store: Store, tmp_path: Path) -> None:
    path = write_model(tmp_path / "mine.gguf", "llama")
    own = store.find(str(path))
    assert own.origin is Origin.PATH
    installed = Installed(store, own)
    assert installed.find(own.id) == own
    assert own in installed.list()


@pytest.mark.parametrize("file", ["mine.Q4_K_M.gguf", "mine.Q4_K_M-00001-of-00001.gguf"])
def test_a_file_the_owner_named_answers_to_its_stem(
    store: Store, tmp_path: Path, file: str
) -> None:
    path = write_model(tmp_path / file, "llama")
    own = store.find(str(path))
    installed = Installed(store, own)
    for name in (str(path), file, file.removesuffix(".gguf"), "mine.Q4_K_M"):
        assert installed.find(name) == own
    with pytest.raises(ModelNotFound):
        installed.find("other")


async def test_an_encoder_gives_vectors_and_is_not_asked_to_write(tmp_path: Path) -> None:
    settings = load_settings({"ctx": 512}, {"RUNNER_HOME": str(tmp_path)})
    folder = settings.models_dir / "me" / "bert"
    folder.mkdir(parents=True)
    write_model(folder / "bert.gguf", "bert")
    host = build_host(settings)
    try:
        (info,) = [info for info in host.models() if info.architecture == "bert"]
        assert (info.writes, info.embeds) == (False, True)
        assert capabilities_of(info) == ["embedding"]
        made = await host.embed(info.id, ["A house.", "A home."], truncate=False)
        assert (made.vectors.shape, made.tokens) == ((2, 64), 15)
        assert np.abs(made.vectors).max() > 0.1
        loaded = next(one for one in host.models() if one.id == info.id)
        assert loaded.context == 512
        with pytest.raises(RequestInvalid, match="use /v1/embeddings"):
            await anext(host.generate(Request(info.id, RawPrompt("A house."))))
    finally:
        await host.close()


def test_an_unknown_draft_model_is_an_error_before_anything_is_loaded(tmp_path: Path) -> None:
    settings = load_settings({"draft": "nobody/nothing"}, {"RUNNER_HOME": str(tmp_path)})
    with pytest.raises(ModelNotFound, match="nobody/nothing"):
        build_host(settings)


@pytest.mark.parametrize("said", ["auto", "off", "true", "No"])
def test_drafting_without_a_model_needs_none(tmp_path: Path, said: str) -> None:
    build_host(load_settings({"draft": said}, {"RUNNER_HOME": str(tmp_path)}))
