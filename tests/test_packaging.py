"""What is installed: the launcher and one private folder, nothing with a general name."""

import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {"app", "runtimes", "router", "models", "quality", "tui"}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        wheel = build_wheel(str(folder))
    with zipfile.ZipFile(folder / wheel) as archive:
        return archive.namelist()


def test_only_the_launcher_and_one_folder_reach_site_packages(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"runner.py", "runner_rooms"}


def test_every_room_is_shipped_whole(names: list[str]) -> None:
    shipped = {name.removeprefix("runner_rooms/") for name in names if "runner_rooms/" in name}
    assert {name.split("/")[0] for name in shipped} == ROOMS
    here = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    assert here == {name for name in shipped if name.endswith(".py")}
