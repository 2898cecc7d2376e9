"""The disk tier never holds anybody up: it delivers what it has, and lives with a disk that has
gone, is full or never was."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from runtimes import kvfiles
from runtimes.diskcache import DiskCache
from runtimes.kvfiles import Entry, Kind, block_key, root_key
from runtimes.messages import DiskSpec

ROOT = Path(__file__).resolve().parents[2]
MODEL = root_key("a model")


def block(first: int, payload: bytes = b"", end: int = 20) -> Entry:
    tokens = np.arange(first, first + 20, dtype=np.int32)
    return Entry(Kind.BLOCK, block_key(MODEL, tokens), MODEL, tokens, end, len(payload))


@dataclass
class Disk:
    """A disk tier on a folder, and what it said."""

    top: Path
    size: int = 1 << 30
    retention_s: float = 3600
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        spec = DiskSpec(self.top, self.size, self.retention_s)
        self.cache = DiskCache(spec, MODEL, {"model": "a.gguf"}, self.notes.append)
        self.found = self.cache.open()

    @property
    def folder(self) -> Path:
        return self.top / MODEL.hex()

    def write(self, first: int, payload: bytes) -> Entry:
        entry = block(first, payload)
        self.cache.write(entry, payload)
        return entry

    def read(self, *entries: Entry) -> list[memoryview | None]:
        came: dict[int, memoryview | None] = {}
        for at, entry in enumerate(entries):
            self.cache.read(entry, partial(came.__setitem__, at))
        assert self.cache.flush(30)
        return [came[at] for at in range(len(entries))]

    def file(self, entry: Entry) -> Path:
        return self.folder / kvfiles.file_name(entry.key)


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name == "kv-disk"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "kv")
    yield made
    made.cache.close()


def test_reads_are_delivered_and_what_is_missing_as_none(disk: Disk) -> None:
    entries = [disk.write(100 * i, b"%d" % i * 50) for i in range(5)]
    assert disk.cache.flush(30)
    disk.file(entries[2]).unlink()
    assert disk.read(*entries, block(900)) == [
        b"0" * 50,
        b"1" * 50,
        None,
        b"3" * 50,
        b"4" * 50,
        None,
    ]
    assert disk.notes == []


def test_what_still_waits_to_be_written_can_be_read(disk: Disk) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def hold(_: memoryview | None) -> None:
        reading.set()
        assert go_on.wait(30)

    disk.cache.read(block(900), hold)
    assert reading.wait(30)  # the disk is busy: nothing is written now
    entry = disk.write(0, b"early")
    assert not disk.file(entry).exists()
    came: list[memoryview | None] = []
    disk.cache.read(entry, came.append)
    go_on.set()
    assert disk.cache.flush(30)
    assert came == [b"early"]


def test_what_is_removed_before_it_is_written_is_never_written(disk: Disk) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def hold(_: memoryview | None) -> None:
        reading.set()
        assert go_on.wait(30)

    disk.cache.read(block(900), hold)
    assert reading.wait(30)
    gone, again = disk.write(0, b"gone"), disk.write(100, b"again")
    disk.cache.remove(gone.key)
    disk.cache.remove(again.key)
    disk.write(100, b"again")
    go_on.set()
    assert disk.cache.flush(30)
    assert kvfiles.keys(disk.folder) == {again.key}
    assert (disk.cache.holds(gone.key), disk.cache.holds(again.key)) == (False, True)


def test_the_same_entry_twice_is_one_file(disk: Disk) -> None:
    entry = disk.write(0, b"once")
    disk.write(0, b"once")
    assert disk.read(entry) == [b"once"]
    assert len(kvfiles.keys(disk.folder)) == 1


def test_close_writes_what_is_queued_and_the_next_process_finds_it(tmp_path: Path) -> None:
    first = Disk(tmp_path)
    entries = [first.write(100 * i, b"%d" % i * 1000) for i in range(40)]
    first.cache.close()
    second = Disk(tmp_path)
    assert {e.key for e in second.found} == {e.key for e in entries}
    assert second.read(*second.found) == [b"%d" % (e.tokens[0] // 100) * 1000 for e in second.found]
    second.cache.close()


def test_memory_to_read_into_is_used_again_once_it_is_given_back(disk: Disk) -> None:
    entries = [disk.write(100 * i, b"%d" % i * 50) for i in range(3)]
    disk.cache.close()
    again = Disk(disk.top)
    (first,) = again.read(entries[0])
    (second,) = again.read(entries[1])
    assert first == b"0" * 50  # it is still somebody's
    assert first is not None
    again.cache.give_back(first)
    (third,) = again.read(entries[2])
    assert (first, second, third) == (b"2" * 50, b"1" * 50, b"2" * 50)
    again.cache.close()


def test_after_close_a_read_is_answered_and_a_write_ignored(tmp_path: Path) -> None:
    made = Disk(tmp_path)
    entry = made.write(0, b"kept")
    made.cache.close()
    made.write(100, b"late")
    came: list[memoryview | None] = []
    made.cache.read(entry, came.append)
    assert came == [None]
    assert kvfiles.keys(made.folder) == {entry.key}


def test_a_spoilt_file_is_told_of_removed_and_never_delivered(disk: Disk) -> None:
    entry = disk.write(0, b"good" * 100)
    assert disk.cache.flush(30)
    data = bytearray(disk.file(entry).read_bytes())
    data[-1] ^= 1
    disk.file(entry).write_bytes(data)
    assert disk.read(entry, entry) == [None, None]
    assert not disk.file(entry).exists()
    assert not disk.cache.holds(entry.key)
    (note,) = disk.notes
    assert "checksum" in note


# ---------------------------------------------------------------------- disks that fail


def test_a_folder_that_cannot_be_made_is_told_once_and_nothing_else_changes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    disk = Disk(tmp_path / "file" / "kv")
    entries = [disk.write(100 * i, b"x" * 100) for i in range(3)]
    assert disk.found == []
    assert disk.read(*entries) == [None] * 3
    for entry in entries:
        disk.cache.touch(entry.key)
        disk.cache.remove(entry.key)
        assert not disk.cache.holds(entry.key)
    disk.cache.close()
    (note,) = disk.notes
    assert "not kept on disk" in note
    assert "--no-disk-cache" in note


def test_a_folder_replaced_by_a_file_is_told_once_and_nothing_is_raised(disk: Disk) -> None:
    entry = disk.write(0, b"x")
    assert disk.cache.flush(30)
    shutil.rmtree(disk.top)
    disk.top.write_text("in the way")
    for i in range(1, 4):
        disk.write(100 * i, b"y")
        assert disk.cache.flush(30)
    assert disk.read(entry) == [None]
    assert len(disk.notes) == 1


FULL = """
import resource, sys
from pathlib import Path
from tests.runtimes.test_diskcache import Disk
disk = Disk(Path(sys.argv[1]))
small = disk.write(0, b"s" * 100)
assert disk.cache.flush(30)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for i in range(1, 4):
    large = disk.write(100 * i, b"l" * 100_000)
    assert disk.cache.flush(30)
    assert not disk.cache.holds(large.key)
assert disk.read(small, large) == [b"s" * 100, None]
disk.cache.close()
print(len(disk.notes), *(p.suffix for p in disk.folder.iterdir()))
"""


def test_a_disk_that_takes_no_more_is_told_once_and_still_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stderr == ""
    notes, *suffixes = done.stdout.split()
    assert (notes, sorted(suffixes)) == ("1", [".json", ".kv"])  # no half of a file is left


def test_a_folder_removed_under_it_is_begun_again(disk: Disk) -> None:
    old = disk.write(0, b"old")
    assert disk.cache.flush(30)
    shutil.rmtree(disk.folder)
    new = disk.write(100, b"new")
    assert disk.read(old, new) == [None, b"new"]
    assert disk.cache.flush(30)
    assert kvfiles.keys(disk.folder) == {new.key}
    assert (disk.folder / kvfiles.ABOUT).exists()
    assert (disk.cache.holds(old.key), disk.cache.reviewed()) == (False, True)
    assert disk.notes == []


# ---------------------------------------------------------------------- what is kept


def test_the_budget_is_kept_while_writing_and_what_went_is_known(tmp_path: Path) -> None:
    disk = Disk(tmp_path, size=20_000)
    entries = [disk.write(100 * i, b"x" * 1000) for i in range(60)]
    assert disk.cache.flush(30)
    left = kvfiles.keys(disk.folder)
    assert sum(p.stat().st_size for p in disk.folder.glob("*.kv")) <= 20_000 + 1200
    assert 10 <= len(left) < 20
    assert disk.cache.reviewed()
    assert not disk.cache.reviewed()
    assert {e.key for e in entries if disk.cache.holds(e.key)} == left
    disk.cache.close()


def test_what_was_used_last_is_kept_longest_even_if_it_was_used_before(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    parent, one, two = (disk.write(100 * i, b"x") for i in range(3))
    assert disk.cache.flush(30)
    for entry in (one, parent, two, parent):  # a path is touched deepest first
        disk.cache.touch(entry.key)
    disk.cache.close()
    stamps = {e.key: disk.file(e).stat().st_mtime_ns for e in (parent, one, two)}
    assert sorted(stamps, key=stamps.__getitem__) == [one.key, two.key, parent.key]
    assert len(set(stamps.values())) == 3


def test_what_is_used_before_it_is_written_counts_as_used_after(disk: Disk) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def hold(_: memoryview | None) -> None:
        reading.set()
        assert go_on.wait(30)

    disk.cache.read(block(900), hold)
    assert reading.wait(30)
    parent, child = disk.write(0, b"parent"), disk.write(100, b"child")
    disk.cache.touch(child.key)
    disk.cache.touch(parent.key)
    go_on.set()
    assert disk.cache.flush(30)
    disk.cache.close()
    assert disk.file(child).stat().st_mtime_ns < disk.file(parent).stat().st_mtime_ns


def test_nothing_piles_up_in_memory_for_a_disk_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    disk = Disk(tmp_path / "file" / "kv")
    for i in range(1000):
        disk.cache.touch(disk.write(i, b"x" * 100).key)
    held = (disk.cache._writes, disk.cache._used, disk.cache._held)
    assert [len(each) for each in held] == [0, 0, 0]
    assert disk.cache._queued == 0
    disk.cache.close()
