"""A model's cache belongs to its weights, to the last tensor."""

import os
from pathlib import Path

from models.fingerprint import fingerprint

SIZE = 8 << 20
TIME = 1_700_000_000_000_000_000


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    os.utime(path, ns=(TIME, TIME))
    return path


def test_the_same_file_elsewhere_is_the_same_model(tmp_path: Path) -> None:
    data = os.urandom(SIZE)
    one = fingerprint([written(tmp_path / "a.gguf", data)])
    assert fingerprint([written(tmp_path / "b.gguf", data)]) == one


def test_tensors_that_changed_places_are_another_model(tmp_path: Path) -> None:
    data = os.urandom(SIZE)
    part = SIZE // 8
    turned = data[: 3 * part] + data[4 * part : 5 * part] + data[3 * part : 4 * part]
    turned += data[5 * part :]
    files = [written(tmp_path / "a.gguf", data), written(tmp_path / "b.gguf", turned)]
    assert len({fingerprint([file]) for file in files}) == 2


def test_a_small_change_is_told_by_its_time(tmp_path: Path) -> None:
    path = written(tmp_path / "a.gguf", bytes(SIZE))
    before = fingerprint([path])
    with path.open("r+b") as file:
        file.seek(SIZE // 2 + 20_000)
        file.write(b"1")
    assert fingerprint([path]) != before


def test_a_file_smaller_than_a_sample_has_one_too(tmp_path: Path) -> None:
    files = [written(tmp_path / name, data) for name, data in (("a", b""), ("b", b"x"))]
    assert len({fingerprint([file]) for file in files}) == 2


def test_the_order_and_number_of_parts_count(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a", b"1"), written(tmp_path / "b", b"2")
    assert len({fingerprint(files) for files in ([a, b], [b, a], [a], [a, b, b])}) == 4
