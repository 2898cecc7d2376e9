"""Ranges of a sequence's memory as bytes (llama.cpp's llama_state_seq_get_data_ext)."""

import numpy as np

from runtimes.llamacpp import binding as c

# A state begins with a magic number and a sequence id, four bytes each.
_HEAD = 8


def _cells(state: memoryview) -> int:
    """How many cells a state of one stream holds, as it says itself after the number of streams."""
    return int.from_bytes(state[_HEAD + 4 : _HEAD + 8], "little")


class States:
    """Ranges of a sequence as bytes, through a sequence id of their own (`scratch`).

    A state is a head, the attention part, then the part that knows no positions (a window,
    recurrent state). Of memory that is not `whole` in its attention part the second is left out of
    a piece: it belongs to the sequence's end, not to the range."""

    def __init__(self, context: c.Context, scratch: int, *, whole: bool) -> None:
        self._context, self._scratch, self._whole = context, scratch, whole
        self._memory = c.memory(context)
        # An empty sequence's part, to put in the place of the one left out.
        nothing = None if whole else c.state_get(context, scratch, c.PARTIAL)
        self._nothing = np.frombuffer(nothing, np.uint8)[_HEAD:] if nothing else None

    def take(self, tokens: int) -> memoryview | None:
        """The scratch sequence's memory, which must be of `tokens` tokens."""
        state = c.state_get(self._context, self._scratch)
        if state is None or _cells(state) != tokens:
            return None
        if self._whole:
            return state
        rest = c.state_size(self._context, self._scratch, c.PARTIAL) - _HEAD
        return state[: len(state) - rest]

    def put(self, piece: memoryview, start: int, end: int) -> bool:
        """Give the scratch sequence a piece's memory; whether it then holds [start, end)."""
        if len(piece) < _HEAD + 8 or _cells(piece) != end - start:
            return False
        if self._whole:
            done = c.state_set(self._context, self._scratch, piece)
            return done and c.seq_range(self._memory, self._scratch) == (start, end - 1)
        if self._nothing is None:
            return False
        state = np.concatenate([np.frombuffer(piece, np.uint8), self._nothing])
        return c.state_set(self._context, self._scratch, state.data)
