"""An executor of plain lists: it keeps the tokens of each sequence, so that a wrong reuse is seen,
and counts cells as shared ones do."""

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.chat import Sampling
from runtimes.base import Caps, CellsExhausted, Cut, Handle, Pick, Row
from runtimes.jobs import Job
from runtimes.sampling import Sampler


@dataclass
class Ledger:
    """See the module. Under `Cut.WINDOW` a sequence is cut or forked only where the `window`
    before that place is still there. What it saves carries a checksum and is refused without."""

    caps: Caps
    window: int = 24
    held: dict[Handle, list[int]] = field(default_factory=dict[Handle, list[int]])
    forks: int = 0
    unready: set[Handle] = field(default_factory=set[Handle])
    parked: dict[Handle, list[int]] = field(default_factory=dict[Handle, list[int]])
    _cells: dict[Handle, list[int]] = field(default_factory=dict[Handle, list[int]])
    _low: dict[Handle, int] = field(default_factory=dict[Handle, int])
    _new: Iterator[int] = field(default_factory=itertools.count)

    def open(self) -> Handle:
        handle = min(set(range(self.caps.max_sequences)) - set(self.held))
        self.held[handle], self._cells[handle], self._low[handle] = [], [], 0
        return handle

    def fork(self, source: Handle, length: int) -> Handle | None:
        if not self._reusable(source, length):
            return None
        handle = self._copy(source, length)
        self.forks += 1
        self._slide(handle)
        return handle

    def cut(self, handle: Handle, length: int) -> bool:
        if not self._reusable(handle, length):
            return False
        self._truncate(handle, length)
        return True

    def share(self, source: Handle, target: Handle, start: int, end: int) -> bool:
        assert self.held[source][start:end] == self.held[target][start:end]
        self._cells[target][start:end] = self._cells[source][start:end]
        return True

    def borrow(self, source: Handle, length: int) -> Handle | None:
        if not self.caps.piece or length > len(self.held[source]):
            return None
        handle = self._copy(source, length)
        self.unready.add(handle)
        return handle

    def save(self, handle: Handle, start: int, end: int) -> memoryview | None:
        assert handle not in self.parked
        piece = self.held[handle][start:end]
        fits = 0 < end - start <= self.caps.piece and len(piece) == end - start
        return _sealed(piece) if fits else None

    def load(self, handle: Handle, start: int, end: int, piece: memoryview) -> bool:
        tokens = _opened(piece)
        if tokens is None or start != len(self.held[handle]) or not self._room(end - start):
            return False
        assert len(tokens) == end - start
        self._append(handle, tokens)
        if self.caps.checkpoints:
            self.unready.add(handle)
        return True

    def checkpoint(self, handle: Handle) -> memoryview | None:
        if not self.caps.checkpoints:
            return None
        assert handle not in self.unready
        return _sealed(self.held[handle])

    def restore(self, handle: Handle, length: int, checkpoint: memoryview) -> bool:
        tokens = _opened(checkpoint)
        if tokens is None:
            return False
        assert len(tokens) == length
        if self.caps.piece:
            if len(self.held[handle]) < length:
                return False
            assert self.held[handle][:length] == tokens, "a checkpoint of other tokens"
            self._truncate(handle, length)
        elif not self._room(length):
            return False
        else:
            assert not self.held[handle]
            self._append(handle, tokens)
        self._low[handle] = max(0, length - self.window)
        self.unready.discard(handle)
        return True

    def park(self, handle: Handle) -> bool:
        assert handle not in self.unready
        self.parked[handle] = self.held[handle]
        self.held[handle], self._cells[handle] = [], []
        return True

    def unpark(self, handle: Handle) -> bool:
        if not self._room(len(self.parked[handle])):
            return False
        low = self._low[handle]
        self._append(handle, self.parked.pop(handle))
        self._low[handle] = low
        return True

    def close(self, handle: Handle) -> None:
        del self.held[handle], self._cells[handle], self._low[handle]
        self.unready.discard(handle)
        self.parked.pop(handle, None)

    def step(self, rows: Sequence[Row], pick: Pick) -> None:
        if not self._room(sum(len(row.tokens) for row in rows)):
            raise CellsExhausted
        for row in rows:
            assert row.position == len(self.held[row.handle])
            assert row.handle not in self.unready, "computed before its state was there"
            assert row.handle not in self.parked
            self._append(row.handle, [int(t) for t in row.tokens])

    def cells(self) -> int:
        """Cells in use."""
        return len(set[int]().union(*self._cells.values()))

    def release(self) -> None:
        pass

    # ------------------------------------------------------------------ inside

    def _room(self, tokens: int) -> bool:
        return self.cells() + tokens <= self.caps.cells

    def _append(self, handle: Handle, tokens: Sequence[int]) -> None:
        self.held[handle] += tokens
        self._cells[handle] += itertools.islice(self._new, len(tokens))
        self._slide(handle)

    def _copy(self, source: Handle, length: int) -> Handle:
        handle = self.open()
        self.held[handle] = self.held[source][:length]
        self._cells[handle] = self._cells[source][:length]
        return handle

    def _truncate(self, handle: Handle, length: int) -> None:
        del self.held[handle][length:], self._cells[handle][length:]

    def _slide(self, handle: Handle) -> None:
        """What has left the window may be gone."""
        self._low[handle] = max(self._low[handle], len(self.held[handle]) - self.window)

    def _reusable(self, handle: Handle, length: int) -> bool:
        if handle in self.unready or length > len(self.held[handle]):
            return False
        match self.caps.cut:
            case Cut.ANY:
                return True
            case Cut.WINDOW:
                return length == 0 or self._low[handle] <= max(0, length - self.window + 1)
            case Cut.NONE:
                return length in (0, len(self.held[handle]))


def _sealed(tokens: Sequence[int]) -> memoryview:
    data = np.array(tokens, "<i4").tobytes()
    return memoryview(data + zlib.crc32(data).to_bytes(4, "little"))


def _opened(piece: memoryview) -> list[int] | None:
    """The tokens of a piece; None where its checksum is wrong."""
    if zlib.crc32(piece[:-4]) != int.from_bytes(piece[-4:], "little"):
        return None
    return [int(t) for t in np.frombuffer(piece[:-4], "<i4")]


def ledger(
    cut: Cut = Cut.ANY,
    *,
    cells: int = 4096,
    sequences: int = 8,
    forks: bool = True,
    piece: int = 0,
    checkpoints: bool = False,
    park_cells: int = 0,
    idle_cells: int = 2048,
    dense: bool = False,
) -> Ledger:
    return Ledger(
        Caps(
            cut, forks, forks, sequences, cells, 512, 8, 1000,
            piece=piece, checkpoints=checkpoints, park_cells=park_cells,
            idle_cells=idle_cells, dense=dense,
        )
    )  # fmt: skip


class Clock:
    """Seconds that pass when asked."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def job(
    job_id: int,
    prompt: Sequence[int],
    max_tokens: int = 8,
    checkpoints: frozenset[int] = frozenset(),
) -> Job:
    sampler = Sampler(Sampling(temperature=0), None)
    return Job(job_id, np.array(prompt, np.int32), max_tokens, sampler, checkpoints=checkpoints)


def row(of: Job, count: int) -> Row:
    """The job's next `count` tokens."""
    assert of.handle is not None
    end = of.computed + count
    return Row(of.handle, of.known[of.computed : end], of.computed, end == len(of.known))
