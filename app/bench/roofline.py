"""How fast this machine's memory is, and so how fast a model of some size can answer at best.

Each decode step reads all weights once: bandwidth divided by their bytes is a ceiling of tokens a
second for one stream, wherever the weights lie in host memory."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.fit import machine_memory

_BUFFER = 1 << 30  # larger than the caches of most processors
_FREE_SHARE = 8
_PASSES = 4
_Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Measured bandwidth, in bytes a second."""

    read: float
    """`numpy.max` over a buffer, in parts, one a thread."""
    copy: float
    """`numpy.copyto` between two buffers, counting what is read and what is written."""
    threads: int
    buffer_bytes: int

    @property
    def best(self) -> float:
        """What the memory was seen to move. One loop does not always reach what it can."""
        return max(self.read, self.copy)


def measure_host_memory(buffer_bytes: int | None = None) -> HostMemory:
    """Takes a few seconds; the machine should be otherwise idle."""
    size = buffer_bytes or min(_BUFFER, machine_memory().available // _FREE_SHARE)
    threads = _threads()
    count = max(threads, size // 4 // threads * threads)
    source = np.ones(count, dtype=np.float32)  # ones: pages of zeros may all be the same page
    target = np.ones_like(source)
    sources, targets = np.split(source, threads), np.split(target, threads)
    reading: list[Callable[[], object]] = [_reader(part) for part in sources]
    copying = [_copier(*parts) for parts in zip(targets, sources, strict=True)]
    return HostMemory(
        read=source.nbytes / _fastest(reading),
        copy=2 * source.nbytes / _fastest(copying),
        threads=threads,
        buffer_bytes=source.nbytes,
    )


def roofline(weight_bytes: int, memory: HostMemory) -> float:
    """Tokens a second of one stream, where each reads all weights at full bandwidth."""
    return memory.best / weight_bytes


def utilisation(weight_bytes: int | None, tpot_s: float | None, memory: HostMemory) -> float | None:
    """The share of the bandwidth that reading all weights once a token took."""
    if not weight_bytes or not tpot_s:
        return None
    return weight_bytes / tpot_s / memory.best


def _threads() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _reader(part: _Floats) -> Callable[[], object]:
    return lambda: np.max(part)


def _copier(target: _Floats, source: _Floats) -> Callable[[], object]:
    return lambda: np.copyto(target, source)


def _fastest(jobs: list[Callable[[], object]]) -> float:
    """Seconds of the fastest pass: others on the machine only ever make it slower."""
    return min(_pass(jobs) for _ in range(_PASSES))


def _pass(jobs: list[Callable[[], object]]) -> float:
    # numpy lets go of the interpreter's lock inside its loops.
    start = threading.Barrier(len(jobs) + 1)

    def work(job: Callable[[], object]) -> None:
        start.wait()
        job()

    workers = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for worker in workers:
        worker.start()
    start.wait()
    began = time.perf_counter()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began
