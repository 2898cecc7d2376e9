"""The generations behind one HTTP request, run at once and read as one stream of pieces."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from models.chat import Event, Finished, Loading, Request, Started
from models.errors import EngineFailed
from runtimes.base import Runtime


@dataclass(frozen=True, slots=True)
class Piece:
    """An event of one of the choices."""

    choice: int
    event: Event


class Generations:
    """Owns one task a choice, from `async with` to its end: leaving cancels what still runs."""

    def __init__(self, runtime: Runtime, requests: Sequence[Request]) -> None:
        self._runtime = runtime
        self._requests = requests
        self._arrived: asyncio.Queue[Piece | Exception] = asyncio.Queue()
        self._settled: deque[Piece] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self.open: set[int] = set(range(len(requests)))
        """Choices that have not finished."""
        self.prompt_tokens: int | None = None
        """The prompt's length, once it is known."""

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._pump(choice, request), name=f"choice-{choice}")
            for choice, request in enumerate(self._requests)
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settle(self, within_s: float) -> None:
        """Wait until every choice was accepted, but no longer than `within_s`.

        Raises the error with which one was refused: until here it can still be an HTTP status."""
        waiting = set(self.open)
        clock = asyncio.get_running_loop().time
        until = clock() + within_s
        while waiting and (piece := await self._arrival(until - clock())):
            self._settled.append(piece)
            if not isinstance(piece.event, Loading):
                waiting.discard(piece.choice)

    async def next(self, within_s: float | None) -> Piece | None:
        """The next piece of any choice; None when none came in time. Raises what went wrong."""
        piece = self._settled.popleft() if self._settled else await self._arrival(within_s)
        if piece and isinstance(piece.event, Finished):
            self.open.discard(piece.choice)
        return piece

    async def _arrival(self, within_s: float | None) -> Piece | None:
        try:
            item = self._arrived.get_nowait()
        except asyncio.QueueEmpty:
            try:
                async with asyncio.timeout(within_s):
                    item = await self._arrived.get()
            except TimeoutError:
                return None
        if isinstance(item, Exception):
            raise item
        if isinstance(item.event, Started):
            self.prompt_tokens = item.event.prompt_tokens
        return item

    async def _pump(self, choice: int, request: Request) -> None:
        finished = False
        try:
            async with contextlib.aclosing(self._runtime.generate(request)) as events:
                async for event in events:
                    finished = finished or isinstance(event, Finished)
                    self._arrived.put_nowait(Piece(choice, event))
            if not finished:
                raise EngineFailed("The engine ended an answer without finishing it.")
        except Exception as error:  # handed to whoever reads, as is
            self._arrived.put_nowait(error)
