"""Running `runner launch` in a process of its own, with agents that are played."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.app import fakeagent

ROOT = Path(__file__).resolve().parents[2]
KEY = "s3cret-key"
KEYBOARD = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@dataclass(frozen=True)
class Seen:
    """What an agent was given."""

    argv: list[str]
    env: dict[str, str]
    terminal: list[bool]
    folders: dict[str, str]
    modes: dict[str, str]
    files: dict[str, str]
    models: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Bench:
    """A home, a folder for temporary files and a PATH on which the agents are played."""

    home: Path

    @property
    def temporary(self) -> Path:
        return self.home / "temporary"

    @property
    def seen_file(self) -> Path:
        return self.home / "seen.json"

    def env(self, **more: str) -> dict[str, str]:
        """The environment of whoever launches."""
        return {
            "PATH": f"{self.home / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "RUNNER_HOME": str(self.home / "runner"),
            "RUNNER_PORT": "9",  # nobody answers there
            "LC_ALL": "C.UTF-8",
            fakeagent.SEEN: str(self.seen_file),
            **more,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / "runner.py"), "launch", *arguments]

    async def launch(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return await asyncio.to_thread(
            subprocess.run,
            self.command(*arguments),
            env=env or self.env(),
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    @contextlib.contextmanager
    def start(
        self, *arguments: str, env: Mapping[str, str], terminal: int | None = None
    ) -> Generator[subprocess.Popen[bytes]]:
        """In a session of its own: without a terminal, as under a supervisor, or on that one."""
        command = self.command(*arguments)
        if terminal is not None:
            command[1:1] = ["-c", KEYBOARD]
        stream = subprocess.DEVNULL if terminal is None else terminal
        with subprocess.Popen(
            command, env=env, stdin=stream, stdout=stream, stderr=stream, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):  # all have ended, as they should
                    os.killpg(process.pid, signal.SIGKILL)

    def seen(self) -> Seen:
        seen = Seen(**json.loads(self.seen_file.read_text()))
        self.seen_file.unlink()
        return seen

    def left_over(self) -> list[str]:
        """What lies in the folder for temporary files."""
        return [file.name for file in self.temporary.iterdir()]


def bench_in(home: Path) -> Bench:
    bench = Bench(home)
    bench.temporary.mkdir(mode=0o700)
    fakeagent.install(home / "bin")
    return bench


def given(bench: Bench, seen: Seen) -> dict[str, str]:
    """The variables that are not as they were, without what a process adds by itself."""
    before = bench.env()
    own = {"LC_CTYPE", "PWD", "SHLVL", "_", "OLDPWD", "RUNNER_API_KEY", fakeagent.ACT}
    return {
        name: value
        for name, value in seen.env.items()
        if name not in own and before.get(name) != value
    }


def holding(values: Mapping[str, str], text: str) -> set[str]:
    return {name for name, value in values.items() if text in value}


Condition = Callable[[], bool]


def exists(file: Path) -> Condition:
    return lambda: os.path.exists(file)
