"""Changes to the models on this machine, as clients of the port order them."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable

from models import starter
from models.address import from_environment
from models.card import ModelCard
from models.download import Progress, download
from models.errors import ModelNotFound, RepoNotFound, RequestInvalid, RunnerError
from models.fit import machine_memory
from models.hub import PullPlan, plan
from models.names import ModelName, NameKind, parse
from models.store import Store

News = PullPlan | Progress | None
"""What a download is, how far it is, or (None) that it still goes on."""


class _Left(Exception):
    """Nobody waits for the download any more."""


class Library:
    """The store's changing side. `local_only` forbids what reaches out."""

    def __init__(self, store: Store, *, local_only: bool = False) -> None:
        self._store = store
        self._local_only = local_only

    async def remove(self, card: ModelCard) -> None:
        """Delete a model's files. Raises RequestInvalid where they are another program's."""
        await asyncio.to_thread(self._store.remove, card)

    def named(self, name: str) -> ModelName:
        """A name that can be pulled. Raises RequestInvalid."""
        if self._local_only:
            raise RequestInvalid("Nothing is fetched: the server was started with --local-only.")
        try:
            meant = parse(name)
        except ModelNotFound:
            meant = None
        if meant is None or meant.kind is NameKind.PATH:
            # Whether there is such a file is no client's business.
            raise RequestInvalid(f"{name} is a path; pull a model by its name.", "model")
        return meant

    async def pull(self, name: ModelName, silence_s: float) -> AsyncGenerator[News, None]:
        """Fetch a model; news come at least every `silence_s`. Closing the generator stops the
        download, and what has come stays. Raises HubError and its kin, and ModelNotFound."""
        news: asyncio.Queue[News | RunnerError | _Done] = asyncio.Queue()
        fetching = _Fetching(name, self._store, asyncio.get_running_loop(), news)
        # A thread of its own, since one may run for hours, and the process need not wait for it.
        threading.Thread(target=fetching.run, name="pull", daemon=True).start()
        try:
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        item = await news.get()
                except TimeoutError:
                    item = None
                if isinstance(item, _Done):
                    return
                if isinstance(item, RepoNotFound):
                    raise ModelNotFound(item.message) from item
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            fetching.left.set()


class _Done:
    """The download is complete."""


class _Fetching:
    """The thread's side of a download."""

    def __init__(
        self,
        name: ModelName,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        news: "asyncio.Queue[News | RunnerError | _Done]",
    ) -> None:
        self.left = threading.Event()
        self._name, self._store, self._loop, self._news = name, store, loop, news

    def run(self) -> None:
        with contextlib.suppress(_Left):
            try:
                fetch(self._name, self._store, self._tell)
                self._tell(_Done())
            except RunnerError as error:
                self._tell(error)
            except OSError as error:
                self._tell(RunnerError(f"The download failed: {error.strerror or error}"))

    def _tell(self, item: News | RunnerError | _Done) -> None:
        if self.left.is_set():
            raise _Left
        try:
            self._loop.call_soon_threadsafe(self._news.put_nowait, item)
        except RuntimeError:  # the loop is closed: the server has ended
            raise _Left from None


def fetch(name: ModelName, store: Store, tell: Callable[[News], None]) -> None:
    """Fetch a model as `runner pull` does. Raises HubError and its kin."""
    if name.kind is NameKind.SHORT and starter.is_starter(name.text):
        starter.fetch(store.models_dir)
        return
    address = from_environment()
    what = plan(name, address, machine_memory())
    tell(what)
    download(what, address, tell)
