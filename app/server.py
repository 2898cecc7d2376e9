"""The HTTP server: the application, and the process that serves it until it is told to stop."""

import asyncio
import contextlib
import functools
import logging
import signal
import socket
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from app.address import is_loopback, local_url
from app.api import chat, completions, docs, embeddings, errors, models, tokens
from app.api.description import describe
from app.api.messages import routes as messages
from app.api.notices import Notices
from app.api.ollama import answers, changes, shelf, vectors
from app.api.reply import Pace
from app.api.responses import routes as responses
from app.api.responses.sealed import Seal
from app.build import build_library
from app.guard import Guard
from app.journal import Journal, configure_logging
from app.recall import RecallingHost
from app.settings import Settings
from app.version import version
from models.errors import RunnerError, SettingsError
from runtimes.base import ModelHost

logger = logging.getLogger("runner.server")

GRACE_S = 10
HostFactory = Callable[[Settings], ModelHost]


ROUTERS = (
    chat,
    completions,
    responses,
    messages,
    embeddings,
    models,
    tokens,
    answers,
    changes,
    shelf,
    vectors,
    docs,
)


def create_app(host: ModelHost, settings: Settings, pace: Pace | None = None) -> FastAPI:
    """The application. It uses `host` and does not close it."""
    app = FastAPI(
        title="runner",
        version=version(),
        openapi_url=None,  # served by our own route
        docs_url=None,  # the page would load its scripts from a foreign site
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.host = RecallingHost(host) if settings.canonical_prompts else host
    app.state.pace = pace or Pace()
    app.state.responses = responses.Memory(seal=Seal(_folder(settings)))
    app.state.notices = Notices()
    app.state.library = build_library(settings)
    app.state.started = time.monotonic()
    app.state.preloading = lambda: False
    app.state.description = functools.cache(_description)
    errors.install(app)
    for room in ROUTERS:
        app.include_router(room.router)
    # The last one added is the first to see a request.
    app.add_middleware(Guard, bind=settings.host, api_key=settings.api_key)
    app.add_middleware(Journal)
    return app


def _folder(settings: Settings) -> Path | None:
    """Where state is kept that outlives the process."""
    return settings.state_dir if settings.state_dir != Path() else None


def _description() -> dict[str, Any]:
    return describe(route for room in ROUTERS for route in room.router.routes)


def serve(
    settings: Settings,
    build: HostFactory,
    *,
    preload: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> int:
    """Serve until a signal comes; `ready` is told the address. Returns the exit code.

    Raises SettingsError where the address cannot be used, and what went wrong with `preload`."""
    check_exposure(settings)
    configure_logging(settings.log_level)
    with contextlib.closing(bind(settings.host, settings.port)) as listener:
        return asyncio.run(_serve(settings, build, listener, preload, ready))


def check_exposure(settings: Settings) -> None:
    """Others may only reach us with a key. Raises SettingsError."""
    if settings.api_key is None and not is_loopback(settings.host):
        raise SettingsError(
            f"host = {settings.host} (from {settings.origin.get('host', 'default')}) can be "
            "reached from other machines, which needs a key: set --api-key or RUNNER_API_KEY."
        )


def bind(host: str, port: int) -> socket.socket:
    """Take the address before anything slow is done. Raises SettingsError."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise SettingsError(f"host = {host} is not an address of this machine.") from None
    listener = socket.socket(family, kind, proto)
    try:
        if hasattr(signal, "SIGHUP"):  # on Windows the option would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)  # from here on clients wait instead of being refused
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise SettingsError(_cannot_bind(host, port, error)) from None
    return listener


def _cannot_bind(host: str, port: int, error: OSError) -> str:
    from app.client import LocalServer  # only needed once something is in the way

    reason = (error.strerror or str(error)).lower()
    if owner := LocalServer.identify(local_url(host, port)):
        reason = f"a runner server (pid {owner.get('pid')}) already uses it"
    return f"Cannot listen on {host} port {port}: {reason}. Stop it or choose another with --port."


class _Server(uvicorn.Server):
    """Stops gently at the first signal and at once at the second; never raises it again, so that
    the models are always closed."""

    signalled: int | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._signal) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signal(self, number: int, _frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self.signalled = number


async def _serve(
    settings: Settings,
    build: HostFactory,
    listener: socket.socket,
    preload: str | None,
    ready: Callable[[str], None] | None,
) -> int:
    host = build(settings)
    app = create_app(host, settings)
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
            timeout_keep_alive=75,
        )
    )
    try:
        async with _preloaded(app, host, preload, server):
            if ready:
                ready(local_url(settings.host, listener.getsockname()[1]))
            await server.serve([listener])
    finally:
        await host.close()
    logger.info("stopped")
    return 130 if server.signalled == signal.SIGINT else 0


@contextlib.asynccontextmanager
async def _preloaded(
    app: FastAPI, host: ModelHost, model: str | None, server: uvicorn.Server
) -> AsyncGenerator[None]:
    """Load `model` beside the serving. A load that fails ends the server: it was asked for."""
    if model is None:
        yield
        return

    async def load() -> None:
        try:
            async with contextlib.aclosing(host.load(model)) as steps:
                async for _ in steps:
                    pass
        except RunnerError:
            server.should_exit = True
            raise
        logger.info("%s is loaded", model)

    task = asyncio.create_task(load(), name="preload")
    app.state.preloading = lambda: not task.done()
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
