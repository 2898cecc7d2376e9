"""Texts that wait to become vectors, in a worker: one after the other, a step at a time between the
steps of those who write."""

from collections import deque
from collections.abc import Generator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import RunnerError
from runtimes.messages import Embed, Embedded

Vector = NDArray[np.float32]


class Embedder(Protocol):
    """Makes vectors of texts given as tokens."""

    @property
    def size(self) -> int:
        """How many numbers a vector has."""
        ...

    @property
    def limit(self) -> int:
        """How many tokens a text may have."""
        ...

    def run(self, texts: Sequence[Sequence[int]]) -> Generator[None, None, list[Vector]]:
        """The texts' vectors, not normalized; stops after each step. Raises a `RunnerError`."""
        ...


class Embedding:
    """The queue of orders. Without an embedder every order is refused."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._waiting: deque[Embed] = deque()
        self._running: tuple[int, Generator[None, None, list[Vector]]] | None = None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._running is None and not self._waiting

    def add(self, order: Embed) -> None:
        """Queue an order."""
        self._waiting.append(order)

    def cancel(self, order_id: int) -> None:
        """Forget an order, if it has not ended."""
        self._waiting = deque(order for order in self._waiting if order.id != order_id)
        if self._running is not None and self._running[0] == order_id:
            self._running[1].close()
            self._running = None

    def step(self) -> Embedded | None:
        """Compute a piece; the oldest order's answer where that was its last."""
        if self._running is None:
            if not self._waiting:
                return None
            order = self._waiting.popleft()
            if self._embedder is None:
                return Embedded(order.id, b"", "this model gives no embeddings")
            self._running = order.id, self._embedder.run(order.texts)
        order_id, work = self._running
        try:
            next(work)
            return None
        except StopIteration as end:
            vectors: list[Vector] = end.value
            data = np.stack(vectors).astype(np.float32).tobytes() if vectors else b""
            answer = Embedded(order_id, data)
        except RunnerError as error:
            answer = Embedded(order_id, b"", error.message)
        self._running = None
        return answer
