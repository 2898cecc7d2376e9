"""Plans: what a pull would fetch, and every way a hub can refuse."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from models.address import HubAddress
from models.card import Format
from models.errors import (
    FilesMissing,
    GatedRepo,
    HubError,
    HubUnreachable,
    ModelInvalid,
    ModelNotFound,
    RepoNotFound,
    RuntimeUnavailable,
    Unauthorized,
)
from models.fit import Memory
from models.hub import PullPlan, plan
from models.names import parse
from tests.hubserver import StubHub
from tests.tinygguf import shards, tiny_gguf

TINY = tiny_gguf(tokens=100)
SHARD = "toy-Q4_K_M-{:05d}-of-00003.gguf"
REPOS = {
    "toy/one": {
        "README.md": b"# toy\n",
        "toy-Q4_K_M.gguf": TINY,
        "toy-Q8_0.gguf": TINY + bytes(64),
        "mmproj-toy-f16.gguf": tiny_gguf("clip", {}),
    },
    "toy/split": {SHARD.format(n + 1): data for n, data in enumerate(shards(3))},
    "toy/mlx": {"config.json": b"{}", "model.safetensors": b"weights", "sub/x.json": b"{}"},
    "mlx-community/Qwen3-8B-4bit": {"config.json": b"{}", "model.safetensors": b"w"},
    "toy/words": {"README.md": b"words"},
    "toy/broken": {"toy-Q4_K_M.gguf": b"this is no model" * 100},
    "toy/tricks": {"../../evil-Q4_K_M.gguf": TINY, "toy-Q8_0.gguf": TINY},
}
ROOMY = Memory(10**12, 10**12)


@pytest.fixture
def hub() -> Iterator[StubHub]:
    with StubHub(REPOS) as server:
        yield server


def planned(
    hub: StubHub, text: str, token: str | None = None, memory: Memory = ROOMY, *, mlx: bool = False
) -> PullPlan:
    return plan(parse(text), HubAddress(hub.url, Path("unused"), token), memory, mlx)


def test_a_plan_says_what_is_fetched_and_why(hub: StubHub) -> None:
    made = planned(hub, "toy/one")
    assert made.id == "toy/one:Q4_K_M"
    assert [file.path for file in made.files] == ["toy-Q4_K_M.gguf"]
    assert made.total_bytes == len(TINY)
    assert made.commit == hub.commit("toy/one")
    assert made.why == "the usual balance of size and quality"
    assert (made.licence, made.gated, made.format) == ("apache-2.0", False, Format.GGUF)
    assert made.page == f"{hub.url}/toy/one"
    assert made.fit.startswith("fits with its whole context of 4,096 tokens")


def test_a_plan_reads_the_header_only(hub: StubHub) -> None:
    planned(hub, "toy/one")
    assert [asked.method for asked in hub.asked] == ["GET", "HEAD", "GET", "GET"]


def test_a_connection_that_breaks_after_the_header_does_not_spoil_the_plan(hub: StubHub) -> None:
    hub.faults.drop_at = 0.9
    assert planned(hub, "toy/one").fit.startswith("fits")


def test_the_quantization_in_the_name_is_the_one_planned(hub: StubHub) -> None:
    assert planned(hub, "toy/one:q8_0").id == "toy/one:Q8_0"


def test_all_shards_are_planned(hub: StubHub) -> None:
    assert [f.path for f in planned(hub, "toy/split").files] == [SHARD.format(n) for n in (1, 2, 3)]


def test_a_shard_that_is_listed_and_gone_is_named_before_anything_is_fetched(hub: StubHub) -> None:
    hub.faults.gone = {SHARD.format(3)}
    with pytest.raises(FilesMissing, match=SHARD.format(3)):
        planned(hub, "toy/split")
    assert hub.transfers(".gguf") == []


def test_a_path_that_leaves_its_folder_is_not_believed(hub: StubHub) -> None:
    assert [file.path for file in planned(hub, "toy/tricks").files] == ["toy-Q8_0.gguf"]


def test_a_file_that_is_no_model_is_refused_before_it_is_fetched(hub: StubHub) -> None:
    with pytest.raises(ModelInvalid, match=r"toy-Q4_K_M\.gguf: not a GGUF file"):
        planned(hub, "toy/broken")


def test_a_repository_without_a_model_is_refused(hub: StubHub) -> None:
    with pytest.raises(ModelNotFound, match="toy/words holds no model"):
        planned(hub, "toy/words")


def test_without_mlx_its_repository_names_a_gguf_instead(hub: StubHub) -> None:
    with pytest.raises(RuntimeUnavailable, match="pull unsloth/Qwen3-8B-GGUF instead"):
        planned(hub, "mlx-community/Qwen3-8B-4bit")
    with pytest.raises(RuntimeUnavailable, match="such as toy/mlx-GGUF"):
        planned(hub, "toy/mlx")


def test_with_mlx_all_its_weights_are_planned(hub: StubHub) -> None:
    made = planned(hub, "toy/mlx", mlx=True)
    assert (made.id, made.format) == ("toy/mlx", Format.MLX)
    assert [file.path for file in made.files] == ["config.json", "model.safetensors"]


def test_an_unknown_or_private_repository_mentions_the_token(hub: StubHub) -> None:
    hub.faults.private = {"toy/one"}
    for repo in ("toy/one", "nobody/nothing"):
        with pytest.raises(RepoNotFound, match=r"not found, or it is private .*token.*HF_TOKEN"):
            planned(hub, repo)
        with pytest.raises(RepoNotFound, match="not found, or the token that is set has no access"):
            planned(hub, repo, token="hf_x")


def test_a_gated_repository_wants_a_token_and_then_its_licence_accepted(hub: StubHub) -> None:
    hub.faults.gated = {"toy/one"}
    page = f"{hub.url}/toy/one"
    with pytest.raises(Unauthorized, match=f"gated: accept its licence at {page} .*HF_TOKEN"):
        planned(hub, "toy/one")
    with pytest.raises(GatedRepo, match=f"has not accepted its licence .*{page}"):
        planned(hub, "toy/one", token="hf_x")


def test_the_token_goes_to_the_hub_and_not_to_the_host_behind_a_redirect(hub: StubHub) -> None:
    planned(hub, "toy/one", token="hf_x")
    assert {asked.authorized for asked in hub.asked if not asked.on_cdn} == {True}
    assert {asked.authorized for asked in hub.asked if asked.on_cdn} == {False}


def test_a_hub_with_a_fault_or_too_much_to_do_says_so(hub: StubHub) -> None:
    hub.faults.status = 503
    with pytest.raises(HubUnreachable, match=r"fault of its own \(HTTP 503\)"):
        planned(hub, "toy/one")
    hub.faults.status = 429
    with pytest.raises(HubUnreachable, match="too many requests"):
        planned(hub, "toy/one")


def test_a_server_that_is_no_hub_is_told_apart() -> None:
    with StubHub(REPOS, siblings="nonsense", sha=None) as hub, pytest.raises(HubError):
        planned(hub, "toy/one")


def test_a_hub_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with StubHub(REPOS) as hub:
        address = HubAddress(hub.url, tmp_path)
    with pytest.raises(HubUnreachable, match=r"Cannot connect to 127\.0\.0\.1:\d+: .*refused"):
        plan(parse("toy/one"), address, ROOMY)


def test_offline_mode_asks_nobody(hub: StubHub) -> None:
    address = HubAddress(hub.url, Path("unused"), offline=True)
    with pytest.raises(HubUnreachable, match="HF_HUB_OFFLINE"):
        plan(parse("toy/one"), address, ROOMY)
    assert hub.asked == []


def test_a_path_is_nothing_to_pull(hub: StubHub, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="nothing to pull"):
        planned(hub, str(tmp_path))
