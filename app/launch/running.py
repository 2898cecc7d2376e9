"""Running an agent: its environment, a folder for its files, and the terminal, which is its own."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self
from urllib.parse import urlsplit

from app.launch.base import Recipe, Setup, Target
from models.errors import AgentMissing, RunnerError

NO_KEY = "none"
"""Sent to a server that asks for no key; agents do not start without one."""


def executable_of(recipe: Recipe) -> str:
    """The path of the agent's program. Raises AgentMissing."""
    path = shutil.which(recipe.executable)
    if path is None:
        raise AgentMissing(
            f"{recipe.title} is not installed: there is no program {recipe.executable} on the "
            f"PATH. Install it with `{recipe.install}`."
        )
    return path


def run_agent(recipe: Recipe, target: Target, key: str | None, arguments: Sequence[str]) -> int:
    """Run the agent until it ends; return its exit status (128 and the signal's number where a
    signal ended it). The folder of `target` is made for this and removed. Raises AgentMissing and
    RunnerError."""
    executable = executable_of(recipe)
    with (
        _PassedOn() as signals,
        tempfile.TemporaryDirectory(prefix="runner-", ignore_cleanup_errors=True) as folder,
    ):
        setup = recipe.prepare(replace(target, folder=folder))
        _write(Path(folder), setup.files)
        env = environment(os.environ, setup, target.url, key or NO_KEY)
        try:
            process = subprocess.Popen([executable, *setup.args, *arguments], env=env)
        except OSError as error:
            raise RunnerError(
                f"{executable} cannot be started: {error.strerror}. Run it by itself to see "
                f"whether it is whole; `{recipe.install}` installs it."
            ) from error
        status = signals.wait(process)
    return 128 - status if status < 0 else status


def environment(base: Mapping[str, str], setup: Setup, url: str, key: str) -> dict[str, str]:
    """The variables of an agent's process."""
    kept = {name: value for name, value in base.items() if name not in setup.unset}
    proxies = without_proxy(base, url)
    keys = dict.fromkeys(setup.key_in, key)
    return {**kept, **setup.env, **keys, "NO_PROXY": proxies, "no_proxy": proxies}


def without_proxy(base: Mapping[str, str], url: str) -> str:
    """For NO_PROXY: what it held, and the server, which no proxy need hear of."""
    held = base.get("NO_PROXY") or base.get("no_proxy") or ""
    names = [name.strip() for name in held.split(",") if name.strip()]
    host = urlsplit(url).hostname or ""
    return ",".join(dict.fromkeys([*names, host, "localhost", "127.0.0.1"]))


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(content)


class _PassedOn:
    """While this is open, signals are for the agent, and we go on until it has ended."""

    _NUMBERS = tuple(
        getattr(signal, name)
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
        if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._before: dict[int, signal.Handlers] = {}

    def __enter__(self) -> Self:
        for number in self._NUMBERS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # as under nohup, where the agent shall ignore it, too
                self._before[number] = signal.signal(number, self._pass_on)  # pyright: ignore
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, process: subprocess.Popen[bytes]) -> int:
        """The status with which the process ends."""
        self._process = process
        for number in self._early:  # came while the process was being started
            process.send_signal(number)
        return process.wait()

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if number in (signal.SIGINT, getattr(signal, "SIGQUIT", None)) and _at_the_keyboard():
            return  # the terminal has told the agent as well; twice would mean something else
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def _at_the_keyboard() -> bool:
    """Whether the terminal sends its signals to us and the agent alike."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
