"""Short names and the repositories behind them."""

import pytest

from models import catalog
from models.errors import ModelNotFound
from models.names import NameKind, parse


def test_every_entry_can_be_typed_and_points_at_a_repository() -> None:
    for entry in catalog.entries():
        assert parse(entry.name).kind is NameKind.SHORT
        assert parse(entry.repo).repo == entry.repo
        assert not entry.mlx or parse(entry.mlx).repo == entry.mlx


def test_no_two_entries_have_one_name() -> None:
    names = [entry.name for entry in catalog.entries()]
    assert len(names) == len(set(names))


def test_a_family_alone_means_its_usual_size() -> None:
    assert catalog.require("qwen3").name == "qwen3:8b"
    assert catalog.require("SmolLM2").name == catalog.STARTER
    assert catalog.require("devstral").name == "devstral:24b"


def test_a_miss_names_what_comes_close() -> None:
    with pytest.raises(ModelNotFound, match=r"Did you mean .*llama3\.2:3b"):
        catalog.require("lama3.2:3b")
    with pytest.raises(ModelNotFound, match=r"Did you mean gemma3:4b or"):
        catalog.require("gemma3:5b")
    with pytest.raises(ModelNotFound, match="can be pulled as org/repo"):
        catalog.require("zzzzzz")


def test_an_mlx_repository_leads_to_its_gguf() -> None:
    assert catalog.gguf_for("mlx-community/qwen3-8b-4bit") == "unsloth/Qwen3-8B-GGUF"
    assert catalog.gguf_for("mlx-community/other") == ""
