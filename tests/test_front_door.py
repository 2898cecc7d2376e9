"""A hostile PYTHONPATH full of namesakes cannot stand in for our rooms."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("app", "models", "runtimes", "router", "quality", "tui")


def test_namesakes_on_the_path_are_not_imported(tmp_path: Path) -> None:
    trap = 'raise SystemExit("a namesake was imported")\n'
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text(trap)
        (tmp_path / f"{room}.py").write_text(trap)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for arguments in (["--version"], ["models", "--help"]):
        done = subprocess.run(
            [sys.executable, str(ROOT / "runner.py"), *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0, done.stderr
        assert "namesake" not in done.stderr + done.stdout
