"""llama.cpp behind the executor protocol: sequence ids over one unified KV cache.

A fork shares cells (metadata only). The cache never says that a reuse is wrong, it answers wrongly:
so every fork and cut is proven by positions first. Reuse up to position p (the next token's) is
right where the highest held position is p - 1 and, under a sliding window W, the lowest is at most
max(0, p - W + 1). Recurrent state exists for a sequence's very end only.

A cache with a window takes over any cell that has left the window of its only holder, however much
room there is, even when it was made large enough to keep them all (`swa_full`). There each sequence
gets a second id, its pin, that holds the same cells: a cell with two holders is never taken.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import DoesNotFit, EngineFailed, ModelInvalid
from runtimes.base import Caps, CellsExhausted, Cut, Handle, Pick, Row
from runtimes.llamacpp import binding as c
from runtimes.messages import LoadSpec, Vocab

MAX_ROWS = 512
# Sequence ids for finished requests, beside the running ones. A recurrent model pays a state for
# each.
IDLE_SEQUENCES = 16
IDLE_STATES = 8
_OK, _NO_ROOM = 0, 1


class LlamaExecutor:
    """See the module. Made by `load`; every call must come from the thread that made it."""

    def __init__(self, model: c.Model, context: c.Context, spec: LoadSpec, log: c.Log) -> None:
        self._model, self._context, self._log = model, context, log
        self._memory = c.memory(context)
        self._vocab_size = c.vocab_size(model)
        self._window = c.window(model)
        stateful = c.keeps_state(model)
        self._pins = bool(self._window and spec.swa_full and not stateful)
        windowed = self._window and not self._pins
        cut = Cut.NONE if stateful else Cut.WINDOW if windowed else Cut.ANY
        ids = c.context_sequences(context)
        self._scratch = ids - 1
        handles = (ids - 1) // 2 if self._pins else ids - 1
        self._pin_offset = handles
        self._free = list(range(handles))[::-1]
        self._length: dict[Handle, int] = {}
        self._pinned: dict[Handle, int] = {}
        self._batch = c.Batch(MAX_ROWS + 1)
        # Kernels for one token differ from those for several, and those from the ones for many: a
        # lone row is padded to two, so that its arithmetic is the same in any company.
        self._pads = not stateful and not c.offloads()
        self._caps = Caps(
            cut=cut,
            shares_prefix=True,
            max_sequences=handles,
            cells=c.context_cells(context),
            max_rows=MAX_ROWS,
            max_outputs=spec.parallel,
            vocab_size=self._vocab_size,
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
        if not self._reusable(source, length):
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
        if self._caps.cut is not Cut.ANY:
            return False
        holders = (target, target + self._pin_offset) if self._pins else (target,)
        for holder in holders:
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
        if self._pins and end - start >= max(1, self._window // 2):
            c.seq_copy(self._memory, handle, handle + self._pin_offset, start, end)
            self._pinned[handle] = end

    def _unpin(self, handle: Handle, length: int) -> None:
        if self._pins and self._pinned[handle] > length:
            c.seq_remove(self._memory, handle + self._pin_offset, length, -1)
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
        return 0 <= low <= max(0, length - self._window + 1)

    def _holds(self, handle: Handle, length: int) -> bool:
        """Whether the cache itself says that the sequence ends at `length` with its window
        whole."""
        low, high = c.seq_range(self._memory, handle)
        if high != length - 1 or low > high:
            return False
        return self._window == 0 or low <= max(0, length - self._window + 1)

    # ------------------------------------------------------------------ steps

    def step(self, rows: Sequence[Row], pick: Pick, *, alone: bool = False) -> None:
        padded = alone and self._pads and len(rows) == 1 and len(rows[0].tokens) == 1
        outputs = self._fill(rows, padded)
        code = self._batch.decode(self._context)
        if padded:
            c.seq_remove(self._memory, self._scratch)
        if code == _NO_ROOM:
            raise CellsExhausted
        if code != _OK:
            raise EngineFailed(f"llama.cpp could not compute a step (code {code}): {self._why()}")
        for row in rows:
            self._length[row.handle] += len(row.tokens)
            self._pin(row.handle)
        pick(_Rows(self._context, outputs, self._vocab_size))

    def _fill(self, rows: Sequence[Row], padded: bool) -> list[int]:
        self._batch.clear()
        outputs: list[int] = []
        for row in rows:
            assert row.position == self._length[row.handle], "a gap in a sequence's positions"
            last = self._batch.add(row.tokens, row.position, row.handle, logits=row.wants_logits)
            if row.wants_logits:
                outputs.append(last)
        if padded:
            self._batch.add([0], 0, self._scratch, logits=False)
        return outputs

    def _why(self) -> str:
        return self._log.last_error() or "no reason given"

    # ------------------------------------------------------------------ the rest

    def memory(self) -> dict[str, Any]:
        return {"weights": c.model_bytes(self._model)}

    def vocab(self) -> Vocab:
        """The vocabulary, read once at load."""
        pieces = c.pieces(self._model)
        bos, eos, adds_bos = c.bos_eos(self._model)
        text = [p.decode("utf-8", "replace") for p in (pieces[bos], pieces[eos])]
        return Vocab(
            pieces=tuple(pieces),
            end_ids=c.end_ids(self._model),
            control_ids=c.control_ids(self._model),
            bos_id=bos,
            eos_id=eos,
            bos_text=text[0] if bos >= 0 else "",
            eos_text=text[1] if eos >= 0 else "",
            adds_bos=adds_bos,
        )

    def encode(self, text: str, add_bos: bool, specials: bool) -> tuple[int, ...]:
        """Tokenize; the one call that may come from another thread."""
        return c.tokenize(self._model, text, add_bos=add_bos, specials=specials)

    def probe(self) -> None:
        """One small step, narrow and wide: a build whose instructions this processor traps dies
        here and not under somebody's request."""
        for width in (1, 32):
            self._batch.clear()
            self._batch.add([0] * width, 0, self._scratch, logits=True)
            code = self._batch.decode(self._context)
            c.seq_remove(self._memory, self._scratch)
            if code != _OK:
                raise EngineFailed(f"the first step failed (code {code}): {self._why()}")

    def release(self) -> None:
        c.free(self._model, self._context)


class _Rows:
    """The logits of the last step."""

    def __init__(self, context: c.Context, outputs: Sequence[int], vocab_size: int) -> None:
        self._context, self._outputs, self._size = context, outputs, vocab_size

    def row(self, index: int) -> NDArray[np.float32]:
        return c.logits_row(self._context, self._outputs[index], self._size)


def load(spec: LoadSpec, progress: Callable[[float], None]) -> LlamaExecutor:
    """Load a GGUF. Raises ModelInvalid where llama.cpp refuses it, DoesNotFit for want of
    memory."""
    log = c.start()
    model = c.load_model(
        spec.path,
        extra_buffers=spec.extra_buffers,
        gpu_layers=spec.gpu_layers,
        progress=progress,
    )
    if model is None:
        raise ModelInvalid(f"llama.cpp cannot load {spec.path.name}: {log.last_error()}")
    if not c.has_decoder(model):
        c.free(model, None)
        raise ModelInvalid(f"{spec.path.name} does not generate text (no decoder)")
    stateful = c.keeps_state(model)
    handles = spec.parallel + (IDLE_STATES if stateful else IDLE_SEQUENCES)
    pins = c.window(model) and spec.swa_full and not stateful
    sequences = (2 * handles if pins else handles) + 1
    context = c.new_context(
        model,
        cells=spec.cells,
        sequences=sequences,
        max_rows=MAX_ROWS + 1,
        max_outputs=sequences,  # the library wants room for one of each
        threads=spec.threads,
        swa_full=spec.swa_full,
    )
    if context is None:
        c.free(model, None)
        raise DoesNotFit(
            f"no memory for a context of {spec.cells} tokens: {log.last_error()}. "
            "Try a smaller --ctx or --parallel."
        )
    return LlamaExecutor(model, context, spec, log)
