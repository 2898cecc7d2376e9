"""An agent that writes down what it was given, and then does as it is told.

A script of its own that needs nothing of ours, so that it starts as any agent does."""

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path

NAMES = ("codex", "claude", "opencode", "qwen", "aider", "cline", "goose", "pi", "copilot")

SEEN = "FAKE_AGENT_SEEN"
"""Where it writes."""
ACT = "FAKE_AGENT_ACT"
"""`exit N`, `die N` (by that signal), `wait` (for SIGTERM; the status is 10 more than the number
of SIGINTs that came before) or `ask` (the server of OPENAI_HOST for its models)."""


def install(folder: Path) -> Path:
    """Put a program of each agent's name in a folder for the PATH."""
    folder.mkdir()
    for name in NAMES:
        program = folder / name
        program.write_text(f"#!{sys.executable}\n" + Path(__file__).read_text("utf-8"), "utf-8")
        program.chmod(0o700)
    return folder


def main() -> None:
    seen = Path(os.environ[SEEN])
    found = {
        "argv": sys.argv[1:],
        "env": dict(os.environ),
        "terminal": [os.isatty(number) for number in range(3)],
        **files(Path(os.environ["TMPDIR"])),
    }
    act, _, number = os.environ.get(ACT, "exit 0").partition(" ")
    if act == "ask":
        url = os.environ["OPENAI_HOST"] + "/v1/models"
        with urllib.request.urlopen(url, timeout=20) as reply:
            found["models"] = json.load(reply)
    interrupts: list[int] = []
    if act == "wait":
        signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(10 + len(interrupts)))
    half = seen.with_suffix(".half")
    half.write_text(json.dumps(found))
    half.rename(seen)
    if act == "exit":
        sys.exit(int(number))
    if act == "die":
        os.kill(os.getpid(), int(number))
    while act == "wait":
        signal.pause()
        seen.with_suffix(".interrupts").write_text(str(len(interrupts)))


def files(temporary: Path) -> dict[str, object]:
    """What lies in the folder that was made for the agent."""
    folders = [one for one in temporary.iterdir() if one.name.startswith("runner-")]
    files = [file for one in folders for file in one.iterdir()]
    return {
        "folders": {str(one): oct(one.stat().st_mode & 0o777) for one in folders},
        "modes": {file.name: oct(file.stat().st_mode & 0o777) for file in files},
        "files": {file.name: file.read_text() for file in files},
    }


if __name__ == "__main__":
    main()
