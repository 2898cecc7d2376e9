"""A server of ours, started for one command and ended with it.

In a process of its own: in ours, a benchmark's client, which keeps the time, would wait for the
interpreter's lock whenever the server has something to do."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from app.settings import LogLevel, Settings, create_folders
from models.errors import EngineFailed, RunnerError

_STOP_S = 15.0  # the server's own grace, and its workers'


@contextlib.contextmanager
def local_server(
    settings: Settings, model: str, log_level: LogLevel = LogLevel.WARNING
) -> Generator[tuple[str, str]]:
    """Serve one model on a free port of this machine; gives the address and the model's id there.
    What it logs goes to stderr.

    Raises RunnerError."""
    from models.store import Store

    create_folders(settings)
    card = Store(settings.models_dir).find(model)  # an unknown name is told before anything starts
    quiet = replace(
        settings,
        host="127.0.0.1",
        port=0,
        log_level=log_level,
        origin=dict(settings.origin),  # a read-only view cannot travel to another process
    )
    context = multiprocessing.get_context("spawn")
    ends: tuple[Any, Any] = context.Pipe(duplex=True)
    ours, theirs = ends
    process = context.Process(target=_serve, args=(theirs, quiet, model))
    process.start()
    theirs.close()
    try:
        yield _address(ours), card.id
    finally:
        ours.close()  # what ends the server; so it also ends when this process is killed
        process.join(_STOP_S)
        if process.is_alive():
            process.kill()
            process.join()


def _address(pipe: Connection) -> str:
    try:
        kind, text = pipe.recv()
    except EOFError:
        raise EngineFailed(
            "The server for this command ended before it could be reached. Start one with "
            "`runner serve` to see why, and run the command beside it."
        ) from None
    if kind == "error":
        raise RunnerError(text)
    return text


def _serve(pipe: Connection, settings: Settings, model: str) -> None:
    """The process: serves until the other end of the pipe is closed."""
    from app.build import build_host
    from app.server import serve

    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the command, which ends us
    threading.Thread(target=_watch, args=(pipe,), daemon=True).start()
    try:
        serve(
            settings,
            partial(build_host, named=model),
            ready=lambda url: pipe.send(("url", url)),
        )
    except RunnerError as error:
        with contextlib.suppress(OSError):
            pipe.send(("error", error.message))


def _watch(pipe: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)
