"""Transfers: resumed, checked, and visible only when complete."""

import errno
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from models.address import HubAddress
from models.choice import HubFile
from models.download import Progress, download
from models.errors import ChecksumMismatch, DiskFull, FilesMissing, HubUnreachable
from models.fit import Memory
from models.hub import PullPlan, plan
from models.hubcache import RepoCache
from models.names import parse
from tests.hubserver import StubHub
from tests.tinygguf import shards, tiny_gguf

BIG = tiny_gguf(tensors=4, width=256)
FILE = "toy-Q4_K_M.gguf"
SHARD = "toy-Q4_K_M-{:05d}-of-00003.gguf"
REPOS = {
    "toy/one": {FILE: BIG},
    "toy/split": {SHARD.format(n + 1): data for n, data in enumerate(shards(3))},
    "toy/mlx": {"config.json": b'{"a": 1}', "model.safetensors": b"weights" * 999},
}


class Puller(NamedTuple):
    """A hub, an empty cache and a download between them that never waits."""

    hub: StubHub
    cache: Path

    def plan(self, text: str) -> PullPlan:
        address = HubAddress(self.hub.url, self.cache)
        return plan(parse(text), address, Memory(10**12, 10**12), mlx=True)

    def fetch(self, made: PullPlan, seen: list[Progress] | None = None) -> Path:
        address = HubAddress(self.hub.url, self.cache)
        progress = seen if seen is not None else []
        return download(made, address, progress.append, pause=lambda seconds: None)

    def pull(self, text: str) -> Path:
        return self.fetch(self.plan(text))

    def names(self) -> list[str]:
        """Every file in a snapshot: what other programs can see."""
        return sorted(p.name for p in self.cache.glob("models--*/snapshots/*/**/*"))


@pytest.fixture
def puller(tmp_path: Path) -> Iterator[Puller]:
    with StubHub(REPOS) as hub:
        yield Puller(hub, tmp_path / "cache")


def test_a_pull_fills_the_ordinary_cache(puller: Puller) -> None:
    made = puller.plan("toy/one")
    path = puller.fetch(made)
    folder = puller.cache / "models--toy--one"
    assert path == folder / "snapshots" / made.commit / FILE
    assert path.read_bytes() == BIG
    assert path.resolve() == folder / "blobs" / made.files[0].sha256
    assert (folder / "refs" / "main").read_text() == made.commit


def test_huggingface_hub_finds_what_was_pulled(puller: Puller) -> None:
    from huggingface_hub import try_to_load_from_cache

    path = puller.pull("toy/one")
    assert try_to_load_from_cache("toy/one", FILE, cache_dir=puller.cache) == str(path)


def test_progress_ends_with_all_bytes(puller: Puller) -> None:
    seen: list[Progress] = []
    puller.fetch(puller.plan("toy/one"), seen)
    assert (seen[-1].file, seen[-1].done, seen[-1].total) == (FILE, len(BIG), len(BIG))
    assert seen[-1].bytes_per_s > 0


def test_a_second_pull_fetches_nothing(puller: Puller) -> None:
    made = puller.plan("toy/one")
    puller.fetch(made)
    before = len(puller.hub.asked)
    assert puller.fetch(made).read_bytes() == BIG
    assert len(puller.hub.asked) == before


def test_a_dropped_connection_is_taken_up_again_where_it_broke(puller: Puller) -> None:
    made = puller.plan("toy/one")
    puller.hub.asked.clear()
    puller.hub.faults.drop_at, puller.hub.faults.drops = 0.4, 1
    assert puller.fetch(made).read_bytes() == BIG
    first, second = puller.hub.transfers(FILE)
    assert (first, second) == (0, int(len(BIG) * 0.4))


def test_a_connection_that_always_breaks_ends_the_pull_and_the_next_resumes(
    puller: Puller,
) -> None:
    puller.hub.faults.drop_at = 0.4
    made = puller.plan("toy/one")
    with pytest.raises(HubUnreachable, match=rf"{FILE} stopped at 39 % .* goes on from there"):
        puller.fetch(made)
    assert puller.names() == []
    puller.hub.faults.drop_at = None
    puller.hub.asked.clear()
    assert puller.fetch(made).read_bytes() == BIG
    assert puller.hub.transfers(FILE) == [int(len(BIG) * 0.4)]


def test_a_hub_without_ranges_gets_a_fresh_start(puller: Puller) -> None:
    made = puller.plan("toy/one")
    puller.hub.asked.clear()
    puller.hub.faults.drop_at, puller.hub.faults.drops = 0.4, 1
    puller.hub.faults.ignore_range = True
    assert puller.fetch(made).read_bytes() == BIG
    assert puller.hub.transfers(FILE) == [0, int(len(BIG) * 0.4)]


def test_a_wrong_byte_is_seen_and_the_next_pull_mends_it(puller: Puller) -> None:
    puller.hub.faults.flip = True
    made = puller.plan("toy/one")
    with pytest.raises(ChecksumMismatch, match="wrong checksum"):
        puller.fetch(made)
    assert puller.names() == []
    assert list(puller.cache.glob("models--toy--one/blobs/*")) == []
    puller.hub.faults.flip = False
    assert puller.fetch(made).read_bytes() == BIG


def test_a_wrong_byte_from_before_is_seen_too(puller: Puller) -> None:
    made = puller.plan("toy/one")
    part = RepoCache(puller.cache, "toy/one").partial(made.files[0])
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" + BIG[1:1000])
    with pytest.raises(ChecksumMismatch):
        puller.fetch(made)
    assert puller.fetch(made).read_bytes() == BIG


def test_a_partial_file_that_is_too_long_is_begun_again(puller: Puller) -> None:
    made = puller.plan("toy/one")
    part = RepoCache(puller.cache, "toy/one").partial(made.files[0])
    part.parent.mkdir(parents=True)
    part.write_bytes(BIG + b"more")
    assert puller.fetch(made).read_bytes() == BIG


def test_more_bytes_than_announced_are_refused(puller: Puller) -> None:
    made = puller.plan("toy/one")
    short = replace(made.files[0], size=len(BIG) - 5)
    with pytest.raises(ChecksumMismatch, match="more bytes came"):
        puller.fetch(replace(made, files=(short,)))


def test_small_files_are_checked_by_gits_own_sum(puller: Puller) -> None:
    made = puller.plan("toy/mlx")
    puller.fetch(made)
    assert puller.names() == ["config.json", "model.safetensors"]
    wrong = [replace(file, blob_id="0" * 40) for file in made.files if not file.sha256]
    with pytest.raises(ChecksumMismatch):
        puller.fetch(replace(made, files=tuple(wrong), commit="other"))


def test_a_split_is_visible_only_when_every_shard_is_there(puller: Puller) -> None:
    made = puller.plan("toy/split")
    puller.hub.faults.gone = {SHARD.format(3)}
    with pytest.raises(FilesMissing, match=SHARD.format(3)):
        puller.fetch(made)
    assert puller.names() == []
    puller.hub.faults.gone = set()
    assert puller.fetch(made).name == SHARD.format(1)
    assert puller.names() == [SHARD.format(n) for n in (1, 2, 3)]


def test_a_disk_without_room_is_told_before_anything_is_fetched(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = puller.plan("toy/one")
    puller.hub.asked.clear()
    usage = shutil.disk_usage(puller.cache.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DiskFull, match=r"needs 525 kB more .* has 1 kB free"):
        puller.fetch(made)
    assert puller.hub.asked == []


def test_a_disk_that_fills_up_keeps_what_has_come(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = puller.plan("toy/one")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("models.download.os.fsync", full)
    with pytest.raises(DiskFull, match="is full; what has come so far is kept"):
        puller.fetch(made)
    part = RepoCache(puller.cache, "toy/one").partial(made.files[0])
    assert part.stat().st_size == len(BIG)


def test_without_links_files_are_copied(puller: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: object, target_is_directory: bool = False) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refused)
    monkeypatch.setattr(Path, "hardlink_to", refused)
    path = puller.pull("toy/one")
    assert not path.is_symlink()
    assert path.read_bytes() == BIG


def test_contents_that_are_here_under_another_name_are_not_fetched_again(puller: Puller) -> None:
    made = puller.plan("toy/one")
    puller.fetch(made)
    puller.hub.asked.clear()
    puller.fetch(replace(made, commit="later"))
    assert puller.hub.transfers(FILE) == []


def test_two_pulls_at_once_fetch_a_file_once(puller: Puller) -> None:
    from concurrent.futures import ThreadPoolExecutor

    made = puller.plan("toy/one")
    puller.hub.asked.clear()
    puller.hub.faults.hold_at = 0.5
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(puller.fetch, made)
        assert puller.hub.faults.held.wait(30)
        second = pool.submit(puller.fetch, made)
        puller.hub.faults.release.set()
        assert first.result(30).read_bytes() == second.result(30).read_bytes() == BIG
    assert puller.hub.transfers(FILE) == [0]


def test_what_is_missing_counts_partial_files(tmp_path: Path) -> None:
    cache = RepoCache(tmp_path, "toy/one")
    file = HubFile("a.gguf", 1000, "a" * 64)
    cache.partial(file).parent.mkdir(parents=True)
    assert cache.missing_bytes((file,)) == 1000
    cache.partial(file).write_bytes(bytes(400))
    assert cache.missing_bytes((file,)) == 600
    cache.blob(file).write_bytes(bytes(1000))
    assert cache.missing_bytes((file,)) == 0
