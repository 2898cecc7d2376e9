"""A llama.cpp context behind the executor protocol: handles are its sequence ids.

A fork shares cells (metadata only). The cache never says that a reuse is wrong, it answers
wrongly: so every fork and cut is proven by positions first. Reuse up to position p (the next
token's) is right where the highest held position is p - 1 and, under a sliding window W, the
lowest is at most max(0, p - W + 1). Recurrent state exists for a sequence's very end only.

A cache with a window takes over any cell that has left the window of its only holder, however much
room there is, even when it was made large enough to keep them all (`swa_full`). There each
sequence gets a second id, its pin, that holds the same cells: a cell with two holders is never
taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.errors import EngineFailed
from runtimes.base import Caps, CellsExhausted, Cut, Handle, Pick, Row
from runtimes.llamacpp import binding as c

MAX_ROWS = 512
_OK, _NO_ROOM = 0, 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How a context's ids are used: `handles` for sequences, as many again where they have `pins`.
    Without `forks` each sequence has a cache of its own."""

    handles: int
    cut: Cut
    pins: bool = False
    forks: bool = True
    window: int = 0

    @property
    def ids(self) -> int:
        """Sequence ids that the context must have."""
        return 2 * self.handles if self.pins else self.handles


class LlamaExecutor:
    """See the module. Every call must come from the thread that loaded the model."""

    def __init__(
        self, context: c.Context, layout: Layout, vocab_size: int, outputs: int, log: c.Log
    ) -> None:
        self._context, self._layout, self._log = context, layout, log
        self._memory = c.memory(context)
        self._vocab_size = vocab_size
        self._free = list(range(layout.handles))[::-1]
        self._length: dict[Handle, int] = {}
        self._pinned: dict[Handle, int] = {}
        self._batch = c.Batch(MAX_ROWS)
        self._caps = Caps(
            cut=layout.cut,
            forks=layout.forks,
            shares_prefix=layout.forks,
            max_sequences=layout.handles,
            cells=c.context_cells(context),
            max_rows=MAX_ROWS,
            max_outputs=outputs,
            vocab_size=vocab_size,
        )

    @property
    def caps(self) -> Caps:
        return self._caps

    # ------------------------------------------------------------------ sequences

    def open(self) -> Handle:
        handle = self._free.pop()
        c.seq_remove(self._memory, handle)
        self._length[handle] = self._pinned[handle] = 0
        return handle

    def fork(self, source: Handle, length: int) -> Handle | None:
        if not self._layout.forks or not self._reusable(source, length):
            return None
        handle = self.open()
        if length:
            c.seq_copy(self._memory, source, handle, 0, length)
            self._length[handle] = length
            self._pin(handle)
            if not self._holds(handle, length):
                self.close(handle)
                return None
        return handle

    def cut(self, handle: Handle, length: int) -> bool:
        if length == self._length[handle]:
            return True
        if not self._reusable(handle, length):
            return False
        if not c.seq_remove(self._memory, handle, length, -1):
            return False
        self._length[handle] = length
        self._unpin(handle, length)
        return True

    def share(self, source: Handle, target: Handle, start: int, end: int) -> bool:
        if self._caps.cut is not Cut.ANY or not self._layout.forks:
            return False
        pins = (target + self._layout.handles,) if self._layout.pins else ()
        for holder in (target, *pins):
            c.seq_remove(self._memory, holder, start, end)
            c.seq_copy(self._memory, source, holder, start, end)
        return True

    def close(self, handle: Handle) -> None:
        c.seq_remove(self._memory, handle)
        self._unpin(handle, 0)
        del self._length[handle], self._pinned[handle]
        self._free.append(handle)

    def _pin(self, handle: Handle) -> None:
        """Let the pin hold all that the sequence does, before any of it leaves the window."""
        start, end = self._pinned[handle], self._length[handle]
        if self._layout.pins and end - start >= max(1, self._layout.window // 2):
            c.seq_copy(self._memory, handle, handle + self._layout.handles, start, end)
            self._pinned[handle] = end

    def _unpin(self, handle: Handle, length: int) -> None:
        if self._layout.pins and self._pinned[handle] > length:
            c.seq_remove(self._memory, handle + self._layout.handles, length, -1)
            self._pinned[handle] = length

    def _reusable(self, handle: Handle, length: int) -> bool:
        """Whether the first `length` tokens of a sequence can be continued as they are."""
        if length > self._length[handle]:
            return False
        if self._caps.cut is Cut.NONE:
            return length in (0, self._length[handle])
        return self._caps.cut is Cut.ANY or length == 0 or self._in_window(handle, length)

    def _in_window(self, handle: Handle, length: int) -> bool:
        low, _ = c.seq_range(self._memory, handle)
        return 0 <= low <= max(0, length - self._layout.window + 1)

    def _holds(self, handle: Handle, length: int) -> bool:
        """Whether the cache itself says that the sequence ends at `length`, its window whole."""
        low, high = c.seq_range(self._memory, handle)
        if high != length - 1 or low > high:
            return False
        return self._layout.window == 0 or low <= max(0, length - self._layout.window + 1)

    # ------------------------------------------------------------------ steps

    def step(self, rows: Sequence[Row], pick: Pick) -> None:
        outputs = self._fill(rows)
        code = self._batch.decode(self._context)
        if code == _NO_ROOM:
            raise CellsExhausted
        if code != _OK:
            raise EngineFailed(f"llama.cpp could not compute a step (code {code}): {self._why()}")
        for row in rows:
            self._length[row.handle] += len(row.tokens)
            self._pin(row.handle)
        pick(_Rows(self._context, outputs, self._vocab_size))

    def _fill(self, rows: Sequence[Row]) -> list[int]:
        self._batch.clear()
        outputs: list[int] = []
        for row in rows:
            assert row.position == self._length[row.handle], "a gap in a sequence's positions"
            last = self._batch.add(row.tokens, row.position, row.handle, logits=row.wants_logits)
            if row.wants_logits:
                outputs.append(last)
        return outputs

    def _why(self) -> str:
        return self._log.last_error() or "no reason given"

    def release(self) -> None:
        c.free_context(self._context)


class _Rows:
    """The logits of the last step."""

    def __init__(self, context: c.Context, outputs: Sequence[int], vocab_size: int) -> None:
        self._context, self._outputs, self._size = context, outputs, vocab_size

    def row(self, index: int) -> NDArray[np.float32]:
        return c.logits_row(self._context, self._outputs[index], self._size)
