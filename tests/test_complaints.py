"""Every test that docs/COMPLAINTS.md names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_tests_that_are_named_exist() -> None:
    text = (ROOT / "docs" / "COMPLAINTS.md").read_text("utf-8")
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", text))
    sources = "\n".join(f.read_text("utf-8") for f in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"def (test_[a-z0-9_]+)\(", sources))
    assert len(named) > 80
    assert not named - defined
