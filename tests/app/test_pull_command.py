"""`runner pull` and `runner models` as people run them: in a process of their own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hubserver import StubHub
from tests.tinygguf import shards, tiny_gguf

ROOT = Path(__file__).resolve().parents[2]
BIG = tiny_gguf(tensors=4, width=256)
LONG = tiny_gguf(tensors=4, width=1024)  # longer than the plan's look at the header
FILE = "toy-Q4_K_M.gguf"
SHARD = "toy-Q4_K_M-{:05d}-of-00003.gguf"
REPOS = {
    "toy/one": {FILE: BIG, "mmproj-toy-f16.gguf": tiny_gguf("clip", {}), "README.md": b"# toy"},
    "toy/long": {FILE: LONG},
    "toy/split": {SHARD.format(n + 1): data for n, data in enumerate(shards(3))},
}
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


def _hear_interrupts() -> None:
    """A shell starts background jobs with SIGINT ignored, and children inherit it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True, slots=True)
class Person:
    """Someone with an empty home, a terminal and a hub."""

    home: Path
    hub: StubHub

    def start(self, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.lower() not in PROXIES and not name.startswith(("HF_", "RUNNER_"))
        }
        kept |= {"HOME": str(self.home), "HF_HOME": str(self.home / "hf")}
        kept |= {"HF_ENDPOINT": self.hub.url, "RUNNER_HOME": str(self.home / "runner")}
        return subprocess.Popen(
            [sys.executable, str(ROOT / "runner.py"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **env},
            preexec_fn=_hear_interrupts,
            cwd=self.home,
        )

    def run(self, *arguments: str, **env: str) -> tuple[int, str, str]:
        with self.start(*arguments, **env) as process:
            out, err = process.communicate(timeout=60)
            assert "Traceback" not in out + err
            return process.returncode, out, err

    def fails(self, *arguments: str, **env: str) -> str:
        """The one line on stderr of a command that fails."""
        code, _, err = self.run(*arguments, **env)
        assert code == 1
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err

    def ids(self) -> list[str]:
        code, out, _ = self.run("models", "list", "--json")
        assert code == 0
        return [card["id"] for card in json.loads(out) if card["origin"] == "hub"]


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with StubHub(REPOS) as hub:
        yield Person(tmp_path, hub)


def test_a_pull_shows_its_plan_and_the_model_is_listed(person: Person) -> None:
    code, out, err = person.run("pull", "toy/one")
    assert (code, err) == (0, "")
    assert "toy/one:Q4_K_M" in out
    assert f"{person.hub.url}/toy/one" in out
    assert "525 kB in 1 file" in out
    assert "Q4_K_M: the only quantization there" in out
    assert "fits with its whole context of 4,096 tokens" in out
    assert "apache-2.0" in out
    assert "100 %" in out
    code, out, _ = person.run("models")
    assert code == 0
    header, *rows = out.splitlines()
    assert header.split() == ["NAME", "SIZE", "QUANT", "CONTEXT", "ORIGIN"]
    assert ["toy/one:Q4_K_M", "525", "kB", "Q4_K_M", "4,096", "hub"] in [r.split() for r in rows]


def test_a_pulled_model_can_be_shown_located_and_removed(person: Person) -> None:
    person.run("pull", "toy/one")
    _, shown, _ = person.run("models", "show", "toy/one")
    assert re.search(r"context length +4096", shown)
    assert re.search(r"licence +mit", shown)
    _, where, _ = person.run("models", "where", "toy/one")
    assert Path(where.strip()).read_bytes() == BIG
    code, out, _ = person.run("models", "rm", "toy/one")
    assert (code, out) == (0, "Removed toy/one:Q4_K_M; 525 kB are free again.\n")
    assert person.ids() == []
    assert "no model toy/one" in person.fails("models", "where", "toy/one")


def test_a_broken_pull_fails_and_the_next_process_resumes(person: Person) -> None:
    person.hub.faults.drop_at = 0.4
    assert "stopped at 39 %" in person.fails("pull", "toy/one")
    assert person.ids() == []
    person.hub.faults.drop_at = None
    person.hub.asked.clear()
    code, _, _ = person.run("pull", "toy/one")
    assert code == 0
    assert int(len(BIG) * 0.4) in person.hub.transfers(FILE)
    assert person.ids() == ["toy/one:Q4_K_M"]


def test_a_stopped_pull_says_that_it_can_go_on_and_does(person: Person) -> None:
    person.hub.faults.hold_at = 0.5
    with person.start("pull", "toy/long") as process:
        assert person.hub.faults.held.wait(30)
        while not any(path.stat().st_size for path in person.home.glob("hf/hub/*/blobs/*.partial")):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        person.hub.faults.release.set()
    assert process.returncode == 130
    assert err == "Stopped. What has come is kept; the same command goes on from there.\n"
    assert person.ids() == []
    person.hub.asked.clear()
    code, _, _ = person.run("pull", "toy/long")
    assert code == 0
    assert person.hub.transfers(FILE)[-1] > 0
    assert person.ids() == ["toy/long:Q4_K_M"]


def test_a_wrong_checksum_is_called_one(person: Person) -> None:
    person.hub.faults.flip = True
    assert "checksum" in person.fails("pull", "toy/one")
    assert person.ids() == []


def test_a_missing_shard_is_named(person: Person) -> None:
    person.hub.faults.gone = {SHARD.format(3)}
    assert SHARD.format(3) in person.fails("pull", "toy/split")


def test_a_gated_repository_is_explained_without_and_with_a_token(person: Person) -> None:
    person.hub.faults.gated = {"toy/one"}
    page = f"{person.hub.url}/toy/one"
    without = person.fails("pull", "toy/one")
    assert page in without
    assert "token" in without
    with_token = person.fails("pull", "toy/one", HF_TOKEN="hf_x")
    assert page in with_token
    assert "has not accepted its licence" in with_token


def test_dead_proxies_are_named_and_not_used_for_this_machine(person: Person) -> None:
    dead = {name.upper(): "http://127.0.0.1:9" for name in PROXIES[:2]}
    dead |= {"ALL_PROXY": "socks5://127.0.0.1:9", "NO_PROXY": ""}
    endpoint = "https://huggingface.co"
    message = person.fails("pull", "nobody/nothing", **dead, HF_ENDPOINT=endpoint)
    assert "through the proxy http://127.0.0.1:9" in message
    code, _, _ = person.run("pull", "toy/one", **dead)
    assert code == 0


def test_an_unknown_short_name_suggests_others(person: Person) -> None:
    assert "Did you mean qwen3:8b" in person.fails("pull", "qwen3:88b")


def test_offline_mode_is_named(person: Person) -> None:
    assert "HF_HUB_OFFLINE" in person.fails("pull", "toy/one", HF_HUB_OFFLINE="1")
