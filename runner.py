"""The front door: our own rooms come first on the path, whatever PYTHONPATH holds."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_INSTALLED = _HERE / "runner_rooms"


def main() -> int:
    """Run the command line; return its exit code."""
    sys.path.insert(0, str(_INSTALLED if _INSTALLED.is_dir() else _HERE))
    from app.cli.main import main as cli

    return cli()


if __name__ == "__main__":
    raise SystemExit(main())
