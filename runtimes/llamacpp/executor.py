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
from runtimes.llamacpp.states import States

MAX_ROWS = 512
PIECE = 256
# A GPU gives its memory back slowly (1.8 GB/s on an H200): shorter pieces, shorter stalls.
GPU_PIECE = 64
# Shorter sequences are not parked: their cells lie scattered among others', and a GPU moves each
# run of cells by itself (600 scattered tokens took an H200 100 ms, 16k in one piece 9).
PARK_LEAST = 1024
_OK, _NO_ROOM = 0, 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How a context's ids are used: `handles` for sequences, as many again where they have `pins`,
    and one to pass states through. Without `forks` each sequence has a cache of its own, which is
    not saved. `attention`: there is memory that grows with the tokens."""

    handles: int
    cut: Cut
    pins: bool = False
    forks: bool = True
    window: int = 0
    attention: bool = True
    parks: bool = False
    idle_cells: int = 2048
    dense: bool = False

    @property
    def ids(self) -> int:
        """Sequence ids that the context must have."""
        return (2 * self.handles if self.pins else self.handles) + self.forks

    @property
    def piece(self) -> int:
        """Tokens that can be saved at once. A state holds a window of them at most, where what lies
        before the window matters too."""
        if not (self.forks and self.attention):
            return 0
        if self.pins:
            return min(PIECE, self.window)
        return GPU_PIECE if self.parks else PIECE


class LlamaExecutor:
    """See the module. Every call must come from the thread that loaded the model."""

    def __init__(
        self,
        context: c.Context,
        layout: Layout,
        vocab_size: int,
        outputs: int,
        park_cells: int,
        log: c.Log,
    ) -> None:
        self._context, self._layout, self._log = context, layout, log
        self._memory = c.memory(context)
        self._vocab_size = vocab_size
        self._free = list(range(layout.handles))[::-1]
        self._length: dict[Handle, int] = {}
        self._pinned: dict[Handle, int] = {}
        self._parked: dict[Handle, memoryview] = {}
        self._scratch = layout.ids - 1
        self._states = States(context, self._scratch, whole=layout.cut is Cut.ANY)
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
            piece=layout.piece,
            checkpoints=layout.forks and layout.cut is not Cut.ANY,
            park_cells=park_cells,
            park_least=PARK_LEAST,
            idle_cells=layout.idle_cells,
            dense=layout.dense,
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
        if length and self._caps.cut is Cut.WINDOW:
            return self._fork_window(source, length)
        handle = self.open()
        if length:
            c.seq_copy(self._memory, source, handle, 0, length)
            self._length[handle] = length
            self._pin(handle)
            if not self._holds(handle, length):
                self.close(handle)
                return None
        return handle

    def _fork_window(self, source: Handle, length: int) -> Handle | None:
        """A cell that two sequences hold is not taken over when it leaves their window, and a small
        window cache would fill with such cells: so the fork gets a window of its own."""
        c.seq_copy(self._memory, source, self._scratch, 0, length)
        window = c.state_get(self._context, self._scratch, c.PARTIAL)
        c.seq_remove(self._memory, self._scratch)
        handle = self.borrow(source, length)
        if handle is None or window is None or not self.restore(handle, length, window):
            if handle is not None:
                self.close(handle)
            return None
        return handle

    def borrow(self, source: Handle, length: int) -> Handle | None:
        if not self._layout.attention or length > self._length[source]:
            return None
        handle = self.open()
        c.seq_copy(self._memory, source, handle, 0, length)
        self._length[handle] = length
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

    # ------------------------------------------------------------------ to and from other tiers

    def save(self, handle: Handle, start: int, end: int) -> memoryview | None:
        if not 0 < end - start <= self._caps.piece or end > self._length[handle]:
            return None
        c.seq_copy(self._memory, handle, self._scratch, start, end)
        piece = self._states.take(end - start)
        c.seq_remove(self._memory, self._scratch)
        return piece

    def load(self, handle: Handle, start: int, end: int, piece: memoryview) -> bool:
        if start != self._length[handle] or not self._caps.piece:
            return False
        if loaded := self._states.put(piece, start, end):
            c.seq_copy(self._memory, self._scratch, handle, start, end)
            self._length[handle] = end
            self._pin(handle)
        c.seq_remove(self._memory, self._scratch)
        return loaded

    def checkpoint(self, handle: Handle) -> memoryview | None:
        if not self._caps.checkpoints or not self._length[handle]:
            return None
        return c.state_get(self._context, handle, c.PARTIAL)

    def restore(self, handle: Handle, length: int, checkpoint: memoryview) -> bool:
        if not self._caps.checkpoints:
            return False
        if self._layout.attention and self._length[handle] < length:
            return False
        # The state first: a sequence with recurrent state of a later position refuses to be cut.
        if not c.state_set(self._context, handle, checkpoint, c.PARTIAL):
            return False
        if self._layout.attention and not c.seq_remove(self._memory, handle, length, -1):
            return False
        self._length[handle] = length
        return self._holds(handle, length)

    def park(self, handle: Handle) -> bool:
        if not self._caps.park_cells or handle in self._parked:
            return False
        state = c.state_get(self._context, handle, c.ON_DEVICE)
        if state is None:
            return False
        self._parked[handle] = state
        c.seq_remove(self._memory, handle)
        self._unpin(handle, 0)
        return True

    def unpark(self, handle: Handle) -> bool:
        done = c.state_set(self._context, handle, self._parked[handle], c.ON_DEVICE)
        if not done or not self._holds(handle, self._length[handle]):
            c.seq_remove(self._memory, handle)
            return False
        del self._parked[handle]
        self._pin(handle)
        return True

    # ------------------------------------------------------------------ an end, and pins

    def close(self, handle: Handle) -> None:
        self._parked.pop(handle, None)
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
            outputs += self._batch.add(row.tokens, row.position, row.handle, row.outputs)
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

    def rows(self) -> NDArray[np.float32]:
        return c.logits_rows(self._context, len(self._outputs), self._size)
