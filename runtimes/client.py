"""The server's end of a worker: start the process, send orders, hand its messages to who asked.

One reader callback on the event loop; nothing blocks but the start of the process (spawn), which
runs in a thread.
"""

import asyncio
import contextlib
import itertools
import multiprocessing
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from models.errors import EngineFailed, ModelInvalid, RequestInvalid, RunnerError
from runtimes import worker
from runtimes.base import EngineStats
from runtimes.messages import (
    Cancel,
    Embed,
    Embedded,
    Encode,
    Encoded,
    FromWorker,
    JobEnd,
    LoadFailed,
    LoadProgress,
    LoadSpec,
    NewToken,
    Notice,
    PrefillProgress,
    Ready,
    Rejected,
    Scored,
    StepDone,
    Stop,
    Submit,
    ToWorker,
)

# What a job's owner is told: its own part of each step, or the error that ended it.
JobNews = NewToken | PrefillProgress | Scored | JobEnd | RunnerError

_STOP_SECONDS = 5.0


@dataclass(slots=True)
class _Death:
    """How the process ended."""

    code: int | None = None

    def describe(self) -> str:
        if self.code is not None and self.code < 0:
            try:
                return f"was killed by {signal.Signals(-self.code).name}"
            except ValueError:
                return f"was killed by signal {-self.code}"
        return f"ended with code {self.code}"


@dataclass(slots=True)
class WorkerClient:
    """A running worker. Made by `start`, ended by `close`."""

    spec: LoadSpec
    ready: Ready
    stats: EngineStats = field(default_factory=EngineStats)
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    note: Callable[[str], None] = lambda _: None
    _process: BaseProcess | None = None
    _connection: Connection | None = None
    _jobs: dict[int, asyncio.Queue[JobNews]] = field(
        default_factory=dict[int, "asyncio.Queue[JobNews]"]
    )
    _encodes: dict[int, "asyncio.Future[tuple[int, ...]]"] = field(
        default_factory=dict[int, "asyncio.Future[tuple[int, ...]]"]
    )
    _embeds: dict[int, "asyncio.Future[bytes]"] = field(
        default_factory=dict[int, "asyncio.Future[bytes]"]
    )
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)
    _death: _Death = field(default_factory=_Death)
    _outbox: "queue.SimpleQueue[ToWorker | None]" = field(
        default_factory=queue.SimpleQueue["ToWorker | None"]
    )

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def jobs(self) -> int:
        """How many requests have not ended."""
        return len(self._jobs) + len(self._embeds)

    # ------------------------------------------------------------------ orders

    def submit(self, make: Callable[[int], Submit]) -> tuple[int, "asyncio.Queue[JobNews]"]:
        """Send a request; returns its id and the queue of its news."""
        self._require_alive()
        job_id = next(self._ids)
        news: asyncio.Queue[JobNews] = asyncio.Queue()
        self._jobs[job_id] = news
        self._send(make(job_id))
        return job_id, news

    def cancel(self, job_id: int) -> None:
        """Stop a request, if it still runs. No more news of it will come."""
        if self._jobs.pop(job_id, None) is not None and not self.dead.is_set():
            self._send(Cancel(job_id))

    async def encode(self, text: str, *, add_bos: bool, specials: bool = True) -> tuple[int, ...]:
        """Text to token ids."""
        self._require_alive()
        request_id = next(self._ids)
        answer: asyncio.Future[tuple[int, ...]] = asyncio.get_running_loop().create_future()
        self._encodes[request_id] = answer
        self._send(Encode(request_id, text, add_bos, specials))
        return await answer

    async def embed(self, texts: Sequence[Sequence[int]]) -> bytes:
        """Texts, as tokens, to vectors: float32 numbers, one vector after the other. Cancelling
        stops it. Raises EngineFailed."""
        self._require_alive()
        order_id = next(self._ids)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._embeds[order_id] = answer
        self._send(Embed(order_id, tuple(map(tuple, texts))))
        try:
            return await answer
        finally:
            if self._embeds.pop(order_id, None) is not None and not self.dead.is_set():
                self._send(Cancel(order_id))

    async def close(self) -> None:
        """End the process; whatever still runs is told."""
        if self._process is None:
            return
        if not self.dead.is_set():
            self._send(Stop())
        await asyncio.to_thread(_end, self._process)
        self._lost()

    # ------------------------------------------------------------------ inside

    def _send(self, message: ToWorker) -> None:
        """Never blocks: a full pipe would stop the event loop, and with it the reading end that the
        worker waits for."""
        self._outbox.put(message)

    def _write(self, connection: Connection) -> None:
        """The writer thread. A broken pipe shows at the reading end, too, which acts on it."""
        with contextlib.suppress(BrokenPipeError, OSError):
            while (message := self._outbox.get()) is not None:
                connection.send(message)

    def _require_alive(self) -> None:
        if self.dead.is_set():
            raise self._failure()

    def _failure(self) -> EngineFailed:
        return EngineFailed(
            f"The process running {self.spec.path.name} {self._death.describe()}. "
            "It is loaded again at the next request."
        )

    def attach(self, process: BaseProcess, connection: Connection) -> None:
        """Take over a worker that has reported `Ready`."""
        self._process, self._connection = process, connection
        threading.Thread(target=self._write, args=(connection,), daemon=True).start()
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read)

    def _read(self) -> None:
        assert self._connection is not None
        try:
            while self._connection.poll():
                self._deliver(self._connection.recv())
        except (EOFError, OSError):
            self._lost()

    def _deliver(self, message: FromWorker) -> None:
        match message:
            case StepDone():
                self.stats = message.stats
                for news in (*message.prefill, *message.scored, *message.tokens):
                    self._tell(news.id, news)
                for end in message.ended:
                    self._tell(end.id, end)
                    self._jobs.pop(end.id, None)
                for no in message.rejected:
                    self._tell(no.id, _refusal(no))
                    self._jobs.pop(no.id, None)
            case Notice(text=text):
                self.note(text)
            case Encoded(id=request_id, tokens=tokens):
                answer = self._encodes.pop(request_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(tokens)
            case Embedded(id=order_id, vectors=vectors, problem=problem):
                waiting = self._embeds.pop(order_id, None)
                if waiting is not None and not waiting.done():
                    if problem:
                        waiting.set_exception(EngineFailed(problem))
                    else:
                        waiting.set_result(vectors)
            case _:
                raise AssertionError(f"unexpected message {type(message).__name__}")

    def _tell(self, job_id: int, news: JobNews) -> None:
        if job_id in self._jobs:  # else it was cancelled meanwhile
            self._jobs[job_id].put_nowait(news)

    def _lost(self) -> None:
        """The pipe is closed: the process is dead, or was ended by us."""
        if self.dead.is_set():
            return
        self.dead.set()
        assert self._process is not None
        assert self._connection is not None
        self._outbox.put(None)
        asyncio.get_running_loop().remove_reader(self._connection.fileno())
        self._connection.close()
        self._process.join(_STOP_SECONDS)
        self._death.code = self._process.exitcode
        failure = self._failure()
        for news in self._jobs.values():
            news.put_nowait(failure)
        for answer in (*self._encodes.values(), *self._embeds.values()):
            if not answer.done():
                answer.set_exception(failure)
        self._jobs.clear()
        self._encodes.clear()
        self._embeds.clear()


def _refusal(no: Rejected) -> RequestInvalid:
    return RequestInvalid(no.message, no.param)


def _end(process: BaseProcess) -> None:
    """Wait for a process to end by itself, then make it."""
    process.join(_STOP_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


# ---------------------------------------------------------------------- starting


async def start(
    spec: LoadSpec, progress: Callable[[float], None], note: Callable[[str], None]
) -> WorkerClient:
    """Start a worker and wait until its model answers; `note` is told what a person should know.
    Raises the load's error, or `WorkerDied` where the process ended by a signal. Cancelling ends
    the process."""
    context = multiprocessing.get_context("spawn")
    ends: tuple[Any, Any] = context.Pipe(duplex=True)
    ours, theirs = ends
    process = context.Process(target=worker.main, args=(theirs, spec), daemon=True)
    await asyncio.to_thread(process.start)
    theirs.close()
    try:
        ready = await _until_ready(process, ours, spec, progress, note)
    except BaseException:
        ours.close()
        process.kill()
        await asyncio.shield(asyncio.to_thread(process.join))
        raise
    client = WorkerClient(spec, ready, note=note)
    client.attach(process, ours)
    return client


class WorkerDied(EngineFailed):
    """The process ended while it loaded; `signal` is the one that killed it, if one did."""

    def __init__(self, message: str, signal_number: int | None) -> None:
        super().__init__(message)
        self.signal = signal_number


async def _until_ready(
    process: BaseProcess,
    pipe: Connection,
    spec: LoadSpec,
    progress: Callable[[float], None],
    note: Callable[[str], None],
) -> Ready:
    loop = asyncio.get_running_loop()
    messages: asyncio.Queue[Any] = asyncio.Queue()

    def read() -> None:
        try:
            while pipe.poll():
                messages.put_nowait(pipe.recv())
        except (EOFError, OSError):
            loop.remove_reader(pipe.fileno())
            messages.put_nowait(None)

    loop.add_reader(pipe.fileno(), read)
    try:
        while True:
            match await messages.get():
                case LoadProgress(fraction=fraction):
                    progress(fraction)
                case Notice(text=text):
                    note(text)
                case Ready() as ready:
                    return ready
                case LoadFailed(message=message):
                    raise ModelInvalid(message)
                case _:
                    await asyncio.to_thread(process.join, _STOP_SECONDS)
                    raise _died(process, spec)
    finally:
        loop.remove_reader(pipe.fileno())


def _died(process: BaseProcess, spec: LoadSpec) -> WorkerDied:
    code = process.exitcode
    how = _Death(code).describe()
    return WorkerDied(
        f"The process loading {spec.path.name} {how}.",
        -code if code is not None and code < 0 else None,
    )
