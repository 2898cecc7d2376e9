"""The house keeps its plan: who may import whom, and how long a file or a function may be."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORDER = ("models", "runtimes", "quality", "router", "app")
ROOMS = (*ORDER, "tui")
# An arrow means "imports": each room knows those before it, and tui talks to the port alone.
ALLOWED = {room: set(ORDER[: index + 1]) for index, room in enumerate(ORDER)} | {"tui": {"tui"}}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
BAD_NAMES = re.compile(r"(^|_)(utils?|helpers?|managers?|misc|common)(_|$)")
BAD_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
FILES = [
    ROOT / "runner.py",
    *sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")),
]


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def imported_rooms(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            names = [node.module or ""]
        for name in names:
            if (room := name.partition(".")[0]) in ROOMS:
                yield room


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_file_keeps_the_house_rules(file: Path) -> None:
    text = file.read_text("utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a file opens with one sentence that says what it is"
    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert not BAD_NAMES.search(file.stem)
    assert not BAD_WORDS.search(text)
    assert "../shared" not in text
    for name, lines in functions(tree):
        assert lines <= MAX_FUNCTION_LINES, f"{name} has {lines} lines"
    if (room := named(file).partition("/")[0]) in ALLOWED:
        foreign = set(imported_rooms(tree)) - ALLOWED[room]
        assert not foreign, f"{room} must not import {', '.join(sorted(foreign))}"
