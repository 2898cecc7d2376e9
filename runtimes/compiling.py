"""Constraints become masks beside the steps: some shapes take seconds, and nobody else waits for
them."""

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from models.errors import RequestInvalid
from runtimes.constraints import ConstraintCompiler
from runtimes.messages import Submit
from runtimes.sampling import Mask
from runtimes.watching import Spelling, guided

# The library lets others run meanwhile; two threads, so that one such shape does not hold up all
# others.
_THREADS = 2


@dataclass(frozen=True, slots=True)
class Compiled:
    """A request with its mask, or with why there is none."""

    order: Submit
    mask: Mask | None
    refusal: RequestInvalid | None = None


class Compiling:
    """Requests whose constraint is being compiled. The threads start with the first of them, and
    die with the process."""

    def __init__(self, compiler: ConstraintCompiler) -> None:
        self._compiler, self._spelling = compiler, Spelling(compiler)
        self._orders: queue.SimpleQueue[Submit] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Compiled] = queue.SimpleQueue()
        self._wanted: set[int] = set()
        self._threads: list[threading.Thread] = []

    def __len__(self) -> int:
        return len(self._wanted)

    def add(self, order: Submit) -> None:
        """Begin to compile a request's constraint."""
        self._wanted.add(order.id)
        self._orders.put(order)
        if len(self._threads) < min(_THREADS, len(self._wanted)):
            thread = threading.Thread(target=self._run, daemon=True, name="constraints")
            self._threads.append(thread)
            thread.start()

    def cancel(self, job_id: int) -> bool:
        """Forget a request; whether it was here."""
        if job_id not in self._wanted:
            return False
        self._wanted.discard(job_id)
        return True

    def take(self, wait_s: float = 0.0) -> Iterator[Compiled]:
        """What is ready; with `wait_s` the first may take so long."""
        while self._wanted:
            try:
                done = self._done.get(timeout=wait_s) if wait_s else self._done.get_nowait()
            except queue.Empty:
                return
            wait_s = 0.0
            if self.cancel(done.order.id):
                yield done

    def _run(self) -> None:
        while True:
            order = self._orders.get()
            assert order.guide is not None
            try:
                if order.id in self._wanted:
                    mask = guided(order.guide, self._compiler, self._spelling)
                    self._done.put(Compiled(order, mask))
            except RequestInvalid as error:
                self._done.put(Compiled(order, None, error))
