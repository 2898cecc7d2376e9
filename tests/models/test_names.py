"""What people type for a model, and what is meant by it."""

from pathlib import Path

import pytest

from models.errors import ModelNotFound, RequestInvalid
from models.names import NameKind, parse


@pytest.mark.parametrize(
    ("text", "repo", "quant"),
    [
        ("org/repo", "org/repo", ""),
        ("org/repo:Q4_K_M", "org/repo", "Q4_K_M"),
        ("org/repo:q4_k_m", "org/repo", "Q4_K_M"),
        ("org/repo:latest", "org/repo", ""),
        ("org\\repo", "org/repo", ""),
        ("  org/repo ", "org/repo", ""),
        ("hf.co/org/repo:Q8_0", "org/repo", "Q8_0"),
        ("huggingface.co/org/repo", "org/repo", ""),
        ("https://huggingface.co/org/repo", "org/repo", ""),
        ("https://huggingface.co/org/repo/", "org/repo", ""),
        ("https://hf.co/org/repo:Q5_K_M", "org/repo", "Q5_K_M"),
        ("https://huggingface.co/org/repo?library=gguf", "org/repo", ""),
        ("hf://org/repo", "org/repo", ""),
        ("Qwen/Qwen2.5-7B-Instruct_v1.0", "Qwen/Qwen2.5-7B-Instruct_v1.0", ""),
    ],
)
def test_a_hub_name_gives_the_repository_and_quantization(text: str, repo: str, quant: str) -> None:
    name = parse(text)
    assert (name.kind, name.repo, name.quant) == (NameKind.HUB, repo, quant)


def test_the_address_of_a_files_page_gives_the_file_and_revision() -> None:
    name = parse("https://huggingface.co/org/repo/blob/v2/sub/model-Q6_K.gguf?download=true")
    assert (name.repo, name.revision, name.file) == ("org/repo", "v2", "sub/model-Q6_K.gguf")
    assert parse("https://huggingface.co/org/repo/blob/main/README.md").file == ""
    assert parse("https://huggingface.co/org/repo/tree/main").revision == "main"


@pytest.mark.parametrize("text", ["qwen3:8b", "Qwen3:8B"])
def test_a_name_without_a_slash_is_a_short_name(text: str) -> None:
    name = parse(text)
    assert (name.kind, name.text) == (NameKind.SHORT, "qwen3:8b")


def test_latest_is_the_same_as_no_tag() -> None:
    assert parse("qwen3:latest").text == "qwen3"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "a\nb",
        "org/re\x00po",
        "org/..",
        "org/../../etc/passwd",
        "org/repo/tree/main/../../x.gguf",
        "org//repo",
        "org/",
        "-org/repo",
        "org/repo:",
        "org/repo:Q4/K",
        "org/re po",
        "org/a--b",
        "hf.co/org",
        "https://example.com/org/repo",
        "https://[broken/org/repo",
        "ftp://huggingface.co/org/repo",
        "a b",
        "..",
        "x" * 5000,
    ],
)
def test_what_can_be_no_model_is_refused_with_examples(text: str) -> None:
    with pytest.raises((RequestInvalid, ModelNotFound)) as caught:
        parse(text)
    assert "\n" not in caught.value.message


def test_a_file_or_folder_that_is_there_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    file = tmp_path / "sub" / "model.gguf"
    file.touch()
    monkeypatch.chdir(tmp_path)
    for text in (str(file), "sub/model.gguf", "./sub/model.gguf", "sub\\model.gguf"):
        name = parse(text)
        assert (name.kind, name.path) == (NameKind.PATH, file)
    assert parse(str(tmp_path / "sub")).path == tmp_path / "sub"


def test_a_folder_that_only_looks_like_a_repository_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "repo").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse("org/repo").kind is NameKind.HUB
    (tmp_path / "org" / "repo" / "config.json").touch()
    assert parse("org/repo").kind is NameKind.PATH


def test_a_path_that_is_not_there_says_so() -> None:
    with pytest.raises(ModelNotFound, match=r"no file or folder \./nowhere\.gguf"):
        parse("./nowhere.gguf")
