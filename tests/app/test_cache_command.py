"""`runner cache`: what is kept on disk is shown as it is, and removed when asked."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import main
from runtimes import kvfiles
from runtimes.kvfiles import Entry, Kind, block_key, root_key

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No test sees the settings of whoever runs it."""
    for name in list(os.environ):
        if name.startswith("RUNNER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("RUNNER_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command; its exit code, and what it wrote to the one and the other."""

    def cache(*arguments: str) -> tuple[int, str, str]:
        code = main(["cache", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return cache


def keep(home: Path, model: str, pieces: int, size: int = 2000) -> Path:
    """Files of a model; its folder."""
    root = root_key(model)
    folder = kvfiles.open_folder(home / "cache" / "kv", root, {"model": model, "engine": "test"})
    for first in range(pieces):
        tokens = np.arange(first, first + 10, dtype=np.int32)
        entry = Entry(Kind.BLOCK, block_key(root, tokens), root, tokens, 10, size)
        kvfiles.write_file(folder, root, entry, bytes(size))
    return folder


def test_an_empty_cache_is_no_error(home: Path, run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert out == f"{home / 'cache' / 'kv'}: 0 B of 20.0 GiB, kept 72 h; on\n"
    assert not (home / "cache").exists()  # looking makes nothing


def test_each_model_is_a_line_the_largest_first(home: Path, run: Run) -> None:
    small, large = keep(home, "small.gguf", 2), keep(home, "large.gguf", 5)
    code, out, err = run()
    total, headings, *lines = out.splitlines()
    assert (code, err) == (0, "")
    assert ": 14 KiB of 20.0 GiB" in total  # of both
    assert headings.split() == ["MODEL", "ID", "PIECES", "SIZE", "LAST", "USED"]
    assert [line.split()[:3] for line in lines] == [
        ["large.gguf", large.name[:12], "5"],
        ["small.gguf", small.name[:12], "2"],
    ]
    assert all(line.endswith(" ago") for line in lines)
    assert run("status")[1].splitlines()[1:] == [headings, *lines]


def test_as_json_it_can_be_read_by_programs(home: Path, run: Run) -> None:
    folder = keep(home, "one.gguf", 3)
    os.utime(sorted(folder.glob("*.kv"))[0], (7e9, 7e9))
    code, out, _ = run("--json")
    told = json.loads(out)
    (model,) = told["models"]
    assert code == 0
    assert (told["folder"], told["enabled"]) == (str(folder.parent), True)
    assert told["bytes"] == model["bytes"] == sum(p.stat().st_size for p in folder.glob("*.kv"))
    assert (model["id"], model["pieces"], model["last_used"]) == (folder.name, 3, 7e9)
    assert model["about"] == {"model": "one.gguf", "engine": "test"}


def test_as_json_an_empty_cache_is_an_empty_list(run: Run) -> None:
    code, out, _ = run("status", "--json")
    told = json.loads(out)
    assert (code, told["models"], told["bytes"]) == (0, [], 0)


def test_a_cache_that_is_off_is_told_to_be(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNNER_DISK_CACHE", "false")
    assert "off" in run()[1]
    assert json.loads(run("--json")[1])["enabled"] is False


def test_purge_removes_all_and_nothing_else(home: Path, run: Run) -> None:
    one, two = keep(home, "one.gguf", 3), keep(home, "two.gguf", 1)
    mine = one.parent / "note.txt"
    mine.write_text("mine")
    code, out, err = run("purge")
    assert (code, err) == (0, "")
    assert out == "removed 8 KiB of 2 models\n"
    assert (one.exists(), two.exists(), mine.read_text()) == (False, False, "mine")
    assert run("purge")[:2] == (0, "removed 0 B of 0 models\n")


@pytest.mark.parametrize("name", ["one.gguf", "One", "ONE.GGUF", None])
def test_purge_removes_a_model_by_its_name_or_id(home: Path, run: Run, name: str | None) -> None:
    one, two = keep(home, "one.gguf", 3), keep(home, "two.gguf", 1)
    code, out, _ = run("purge", name or one.name[:12])
    assert (code, one.exists(), two.exists()) == (0, False, True)
    assert out == "removed 6 KiB of 1 model\n"


@pytest.mark.parametrize("name", ["three.gguf", "on"])
def test_purge_of_an_unknown_model_says_so_and_removes_nothing(
    home: Path, run: Run, name: str
) -> None:
    folder = keep(home, "one.gguf", 3)
    code, out, err = run("purge", name)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: Nothing is kept of {name}")
    assert err.count("\n") == 1
    assert len(list(folder.glob("*.kv"))) == 3


def test_a_folder_that_is_none_is_as_good_as_empty(home: Path, run: Run) -> None:
    (home / "cache").write_text("in the way")
    assert run()[0] == 0
    assert json.loads(run("--json")[1])["models"] == []
    assert run("purge")[:2] == (0, "removed 0 B of 0 models\n")


def test_what_cannot_be_removed_is_an_error_in_one_line(home: Path, run: Run) -> None:
    folder = keep(home, "one.gguf", 1)
    (folder / kvfiles.ABOUT).unlink()
    (folder / kvfiles.ABOUT).mkdir()  # a folder where a file should be
    code, out, err = run("purge")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: {folder} cannot be removed: ")
    assert err.count("\n") == 1


def test_what_has_no_note_of_its_model_is_shown_and_can_be_purged(home: Path, run: Run) -> None:
    folder = keep(home, "one.gguf", 1)
    (folder / kvfiles.ABOUT).write_text("{")
    assert run()[1].splitlines()[-1].split()[:2] == ["?", folder.name[:12]]
    assert run("purge", folder.name)[0] == 0
    assert not folder.exists()
