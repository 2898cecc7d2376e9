"""KV memory on disk: a file is whole and its own or it is not used; folders keep their budget."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes import kvfiles
from runtimes.kvfiles import Entry, FileUnusable, Key, Kind, block_key, root_key

ROOT = Path(__file__).resolve().parents[2]
MODEL = root_key("a model")
ABOUT = {"model": "a.gguf"}
PAYLOAD = bytes(range(256)) * 3


def block(first: int = 0, parent: Key = MODEL, payload: bytes = PAYLOAD, count: int = 20) -> Entry:
    tokens = np.arange(first, first + count, dtype=np.int32)
    return Entry(Kind.BLOCK, block_key(parent, tokens), parent, tokens, count, len(payload))


def stored(top: Path, entry: Entry, payload: bytes = PAYLOAD, root: Key = MODEL) -> Path:
    folder = kvfiles.open_folder(top, root, ABOUT)
    kvfiles.write_file(folder, root, entry, payload)
    return folder / kvfiles.file_name(entry.key)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    entry = block()
    folder = kvfiles.open_folder(tmp_path, MODEL, ABOUT)
    size = kvfiles.write_file(folder, MODEL, entry, PAYLOAD)
    (found,) = kvfiles.scan(folder, MODEL)
    assert (found.kind, found.key, found.parent, found.end) == (
        (entry.kind, entry.key, entry.parent, entry.end)
    )
    assert found.tokens.tolist() == entry.tokens.tolist()
    assert kvfiles.read_payload(folder, MODEL, found) == PAYLOAD
    assert size == (folder / kvfiles.file_name(entry.key)).stat().st_size
    assert kvfiles.keys(folder) == {entry.key}


def test_a_checkpoint_without_tokens_or_bytes_is_read_too(tmp_path: Path) -> None:
    entry = Entry(Kind.CHECKPOINT, b"k" * 16, b"\0" * 16, np.empty(0, np.int32), 77, 0)
    folder = stored(tmp_path, entry, b"").parent
    (found,) = kvfiles.scan(folder, MODEL)
    assert (found.kind, found.end, found.size) == (Kind.CHECKPOINT, 77, 0)
    assert kvfiles.read_payload(folder, MODEL, found) == b""


def test_a_key_does_not_depend_on_how_the_array_lies_in_memory() -> None:
    plain = np.arange(40, dtype=np.int32)
    strided = np.repeat(plain, 2)[::2]
    assert block_key(MODEL, strided) == block_key(MODEL, plain)
    assert block_key(MODEL, plain.astype(np.int64).astype(">i4")) == block_key(MODEL, plain)


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    path = stored(tmp_path / "above" / "kv", block())
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {f.name for f in path.parent.iterdir()} == {path.name, kvfiles.ABOUT}


WRITER = """
import sys
from pathlib import Path
from tests.runtimes.test_kvfiles import MODEL, ABOUT, block
from runtimes import kvfiles
folder = kvfiles.open_folder(Path(sys.argv[1]), MODEL, ABOUT)
payload = b"x" * (4 << 20)
for first in range(1 << 30):
    kvfiles.write_file(folder, MODEL, block(first, payload=payload), payload)
    print(first, flush=True)
"""


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    path = stored(tmp_path, block())
    os.mkfifo(path.with_name("0" * 32 + path.suffix))  # to open it would wait for a writer
    assert [entry.key for entry in kvfiles.scan(path.parent, MODEL)] == [block().key]


def test_a_killed_writer_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    for round_ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            for _ in range(2 + round_):
                assert writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
    folder = kvfiles.open_folder(tmp_path, MODEL, ABOUT)
    names = {p.name for p in folder.glob("*.kv")}
    found = list(kvfiles.scan(folder, MODEL))
    assert (
        {kvfiles.file_name(e.key) for e in found} == names == {p.name for p in folder.glob("*.kv")}
    )
    assert len(found) >= 2
    for entry in found:
        assert kvfiles.read_payload(folder, MODEL, entry) == b"x" * (4 << 20)
    later = max(p.stat().st_mtime for p in folder.iterdir()) + 7200
    kvfiles.prune(tmp_path, 1 << 40, 1e6, now=later)
    assert not list(folder.glob("*.tmp"))  # what was half written goes some day


def unusable(path: Path, entry: Entry) -> None:
    """Neither way to the payload gives one."""
    with pytest.raises((FileUnusable, OSError)):
        kvfiles.read_payload(path.parent, MODEL, entry)
    for found in kvfiles.scan(path.parent, MODEL):
        with pytest.raises(FileUnusable):
            kvfiles.read_payload(path.parent, MODEL, found)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), kind=st.sampled_from(Kind))
def test_one_changed_byte_anywhere_is_noticed(
    tmp_path: Path, at: float, flip: int, kind: Kind
) -> None:
    entry = block() if kind is Kind.BLOCK else Entry(
        Kind.CHECKPOINT, b"k" * 16, b"\0" * 16, np.empty(0, np.int32), 77, len(PAYLOAD)
    )  # fmt: skip
    path = stored(tmp_path, entry)
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= flip
    path.write_bytes(data)
    unusable(path, entry)


def test_every_changed_byte_of_the_head_is_noticed(tmp_path: Path) -> None:
    entry = block()
    for position in range(90 + 4 * 20):
        path = stored(tmp_path, entry)
        data = bytearray(path.read_bytes())
        data[position] ^= 0x80
        path.write_bytes(data)
        unusable(path, entry)


def test_every_truncation_and_anything_behind_is_noticed(tmp_path: Path) -> None:
    entry = block()
    whole = stored(tmp_path, entry).read_bytes()
    for length in [*range(len(whole)), len(whole) + 1, len(whole) + 4]:
        path = tmp_path / MODEL.hex() / kvfiles.file_name(entry.key)
        path.write_bytes((whole + b"\0" * 4)[:length])
        with pytest.raises(FileUnusable):
            kvfiles.read_payload(path.parent, MODEL, entry)
        assert list(kvfiles.scan(path.parent, MODEL)) == []
        assert not path.exists()  # what is of no use is removed


def test_a_file_under_another_name_is_refused(tmp_path: Path) -> None:
    entry, other = block(), block(500)
    path = stored(tmp_path, entry)
    path.rename(path.with_name(kvfiles.file_name(other.key)))
    unusable(path, other)
    assert list(kvfiles.scan(path.parent, MODEL)) == []


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    entry = block()
    theirs = stored(tmp_path, entry, root=root_key("another model"))
    folder = kvfiles.open_folder(tmp_path, MODEL, ABOUT)
    theirs.rename(folder / theirs.name)
    unusable(folder / theirs.name, entry)


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    entry = block()
    path = stored(tmp_path, entry)
    data = bytearray(path.read_bytes())
    data[7] += 1
    path.write_bytes(data)
    with pytest.raises(FileUnusable, match="version"):
        kvfiles.read_payload(path.parent, MODEL, entry)


def test_a_block_whose_tokens_are_not_those_of_its_name_is_refused(tmp_path: Path) -> None:
    entry, other = block(), block(500)
    lie = Entry(Kind.BLOCK, entry.key, MODEL, other.tokens, entry.end, entry.size)
    path = stored(tmp_path, lie)
    assert list(kvfiles.scan(path.parent, MODEL)) == []


# ---------------------------------------------------------------------- folders


def filled(top: Path, ages: list[int], now: float = 1e9) -> list[Path]:
    """Files of one size, unused for so many seconds."""
    paths = [stored(top, block(100 * i)) for i in range(len(ages))]
    for path, age in zip(paths, ages, strict=True):
        os.utime(path, (now - age, now - age))
    return paths


def left(paths: list[Path]) -> list[int]:
    return [i for i, path in enumerate(paths) if path.exists()]


def test_what_is_too_old_goes_first_whatever_the_budget(tmp_path: Path) -> None:
    paths = filled(tmp_path, [10, 200, 30, 101])
    assert kvfiles.prune(tmp_path, 1 << 40, 100, now=1e9) == 2
    assert left(paths) == [0, 2]


def test_then_the_longest_unused_until_the_budget_is_kept(tmp_path: Path) -> None:
    paths = filled(tmp_path, [10, 40, 30, 20, 500])
    size = paths[0].stat().st_size
    assert kvfiles.prune(tmp_path, 2 * size, 100, now=1e9) == 3
    assert left(paths) == [0, 3]
    assert kvfiles.prune(tmp_path, 2 * size, 100, now=1e9) == 0
    assert kvfiles.prune(tmp_path, 2 * size - 1, 100, now=1e9) == 1
    assert left(paths) == [0]
    assert kvfiles.prune(tmp_path, 0, 100, now=1e9) == 1


def test_the_budget_is_that_of_all_models_together(tmp_path: Path) -> None:
    mine = stored(tmp_path, block())
    theirs = stored(tmp_path, block(), root=root_key("another model"))
    os.utime(theirs, (1, 1))
    assert kvfiles.prune(tmp_path, mine.stat().st_size, 1e12) == 1
    assert (mine.exists(), theirs.exists()) == (True, False)


def test_nothing_of_others_is_ever_removed(tmp_path: Path) -> None:
    ours = stored(tmp_path, block())
    foreign = [
        tmp_path / "note.txt",
        tmp_path / "elsewhere" / "old.kv",
        tmp_path / "elsewhere" / "left.tmp",
        ours.parent / "mine.kv",
        ours.parent / "draft.tmp",
        ours.parent / "notes" / "a.kv",
        ours.parent / f"{'a' * 32}.kv" / "inside",
    ]
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        os.utime(path, (1, 1))
    list(kvfiles.scan(ours.parent, MODEL))
    kvfiles.prune(tmp_path, 0, 0)
    assert not ours.exists()
    assert [path.read_text() for path in foreign] == ["mine"] * len(foreign)
    kvfiles.purge(ours.parent)
    assert [path.read_text() for path in foreign] == ["mine"] * len(foreign)


def test_usage_tells_the_largest_first(tmp_path: Path) -> None:
    small = stored(tmp_path, block())
    large = stored(tmp_path, block(payload=PAYLOAD * 9), PAYLOAD * 9, root_key("another model"))
    stored(tmp_path, block(300, payload=PAYLOAD * 9), PAYLOAD * 9, root_key("another model"))
    (tmp_path / "elsewhere").mkdir()
    os.utime(small, (5, 5))
    first, second = kvfiles.usage(tmp_path)
    assert (first.folder, first.files, first.about) == (large.parent, 2, ABOUT)
    assert first.size == 2 * large.stat().st_size
    assert (second.files, second.size, second.last_used) == (1, small.stat().st_size, 5.0)


@pytest.mark.parametrize("about", ["", "[1]", "{", "\udcff"])
def test_usage_lives_with_a_spoilt_note(tmp_path: Path, about: str) -> None:
    path = stored(tmp_path, block())
    (path.parent / kvfiles.ABOUT).write_bytes(about.encode("utf-8", "surrogateescape"))
    (use,) = kvfiles.usage(tmp_path)
    assert (use.about, use.files) == ({}, 1)


def test_of_what_is_not_there_nothing_is_told_or_removed(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    assert kvfiles.usage(missing) == []
    assert kvfiles.prune(missing, 0, 0) == 0
    assert list(kvfiles.scan(missing, MODEL)) == []
    assert kvfiles.keys(missing) == set()


def test_purge_removes_a_model_whole(tmp_path: Path) -> None:
    path = stored(tmp_path, block())
    (path.parent / "tmpabc.tmp").write_bytes(b"half")
    kvfiles.purge(path.parent)
    assert list(tmp_path.iterdir()) == []
    assert kvfiles.usage(tmp_path) == []


def test_processes_that_prune_and_purge_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def often(deed: Callable[[], object]) -> None:
        try:
            for _ in range(60):
                deed()
        except BaseException as error:
            failed.append(error)

    folder = tmp_path / MODEL.hex()
    deeds: list[Callable[[], object]] = [
        lambda: kvfiles.prune(tmp_path, 0, 1e9),
        lambda: kvfiles.prune(tmp_path, 0, 0, now=1e11),
        lambda: list(kvfiles.scan(folder, MODEL)),
        lambda: kvfiles.usage(tmp_path),
        lambda: kvfiles.purge(folder),
    ]
    threads = [threading.Thread(target=often, args=(deed,)) for deed in (*deeds, *deeds)]
    for thread in threads:
        thread.start()
    for number in range(300):
        with contextlib.suppress(FileNotFoundError):  # purged in between: who writes begins again
            stored(tmp_path, block(number))
    for thread in threads:
        thread.join()
    assert failed == []
