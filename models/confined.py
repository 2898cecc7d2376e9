"""A model's chat template in a process of its own, which may take so much time and memory.

Templates come with models and are programs: one may loop for ever, or build a string as large as
all memory. The sandbox keeps them away from files and from Python. Time and memory only a process
can bound: `'a' * 10**10` is a single instruction, and nothing beside it gets to run meanwhile.
"""

import asyncio
import json
import multiprocessing
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from models.chat import Conversation
from models.errors import TemplateFailed
from models.fit import human_bytes
from models.rendering import REFUSED, TEXT, TRAITS, Bounds, kernel_bounds_memory, main
from models.templates import Traits

_LOOK_S = 0.05


class _Stopped(Exception):
    """The process is gone, for this reason."""


class ConfinedTemplate:
    """A chat template as `ChatTemplate`. Raises TemplateFailed where the source does not parse.

    A template that breaks its bounds before it has seen a message is never run again."""

    def __init__(
        self, source: str, bos: str = "", eos: str = "", bounds: Bounds | None = None
    ) -> None:
        self.source = source
        self._bounds = bounds or Bounds()
        self._special = bos, eos
        self._process: _Process | None = None
        self._turn = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "template")
        self._hopeless = ""
        self._closed = False
        try:
            self._process, self.traits = self._start()
        except _Stopped as reason:
            self._hopeless = str(reason)
            self.traits = Traits(False, False, False, False, False, False)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None else None

    async def rendered(self, conversation: Conversation) -> str:
        """See `render`. One at a time, in the order in which they came."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self.render, conversation)

    def render(self, conversation: Conversation) -> str:
        """The prompt's text, up to where the assistant speaks. Raises TemplateFailed. Blocks, but
        not much longer than the bounds."""
        with self._turn:
            try:
                return self._render(conversation)
            except _Stopped as reason:
                self._end()
                raise TemplateFailed(f"The model's chat template {reason}.", "messages") from None

    def close(self) -> None:
        """End the process, also where it is rendering. Does not block."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        self._thread.submit(self._end)
        self._thread.shutdown(wait=False)

    def _render(self, conversation: Conversation) -> str:
        if self._hopeless or self._closed:
            raise _Stopped(self._hopeless or "is closed")
        if self._process is None:
            self._process, _ = self._start()
        return _text_of(self._process.ask(conversation), self._bounds)

    def _start(self) -> "tuple[_Process, Traits]":
        """A new process that has compiled the template and found out what it can express."""
        process = _Process(self._bounds)
        try:
            answer = process.ask((self.source, *self._special))
            if answer.startswith(TRAITS):
                return process, Traits(**json.loads(answer.removeprefix(TRAITS)))
            _text_of(answer, self._bounds)
            raise _Stopped("gave an answer of another kind")
        except BaseException:
            process.end()
            raise

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


def _text_of(answer: bytes, bounds: Bounds) -> str:
    if answer.startswith(TEXT):
        return str(memoryview(answer)[len(TEXT) :], "utf-8")
    if answer.startswith(REFUSED):
        raise TemplateFailed(answer.removeprefix(REFUSED).decode("utf-8", "replace"), "messages")
    raise _Stopped(f"wants more than {human_bytes(bounds.memory_bytes)} of memory")


class _Process:
    """The process and our end of its pipe. Only bytes come from there: whatever a template can
    make of its process, ours will not take an object from it."""

    def __init__(self, bounds: Bounds) -> None:
        context = multiprocessing.get_context("spawn")
        ends: tuple[Any, Any] = context.Pipe(duplex=True)
        self._pipe: Connection = ends[0]
        self._bounds = bounds
        self._watched = not kernel_bounds_memory()
        self._process: BaseProcess = context.Process(
            target=main, args=(ends[1], bounds, not self._watched), daemon=True
        )
        self._process.start()
        ends[1].close()

    def ask(self, question: object) -> bytes:
        """Raises _Stopped where the process breaks its bounds or dies."""
        bounds, until = self._bounds, time.monotonic() + self._bounds.wall_s
        try:
            self._pipe.send(question)
            while not self._pipe.poll(_LOOK_S):
                if time.monotonic() > until:
                    raise _Stopped(f"did not come to an end in {bounds.wall_s:g} s")
                if self._watched and self._resident() > bounds.memory_bytes:
                    raise _Stopped(f"wants more than {human_bytes(bounds.memory_bytes)} of memory")
            return self._pipe.recv_bytes(bounds.text_bytes + len(TEXT))
        except (EOFError, OSError):
            self._process.join(_LOOK_S * 20)
            raise _Stopped(_death(self._process.exitcode, bounds)) from None

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def kill(self) -> None:
        """Safe from any thread."""
        with suppress(ValueError, OSError):
            self._process.kill()

    def end(self) -> None:
        self._pipe.close()
        self._process.kill()
        self._process.join()

    def _resident(self) -> int:
        import psutil

        try:
            return psutil.Process(self._process.pid).memory_info().rss
        except psutil.Error:
            return 0


def _death(code: int | None, bounds: Bounds) -> str:
    if code is None:  # it lives: what it sent was longer than is taken
        return f"makes a prompt of more than {human_bytes(bounds.text_bytes)}"
    if code == -signal.SIGPROF:
        return f"takes more than {bounds.cpu_s:g} s of processor time"
    return f"ended the process it ran in (code {code})"
