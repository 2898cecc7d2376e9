"""Copies sequences' attention memory into the block store, a piece at a time.

A piece is short enough to go between two steps; what is stored already is skipped.
"""

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from runtimes.base import Executor, Handle
from runtimes.blocks import BLOCK, BlockStore
from runtimes.kvfiles import Key, block_key
from runtimes.radix import RadixTree, Tokens

# A sequence's last tokens, fewer than a block, are stored where there are so many of them.
MIN_TAIL = 16

_COUNT = struct.Struct("<I")
_PIECE = struct.Struct("<IQ")


def pack(pieces: Sequence[tuple[int, memoryview]]) -> bytes:
    """Pieces of memory, each of so many tokens, as one payload."""
    heads = [_PIECE.pack(tokens, len(piece)) for tokens, piece in pieces]
    return b"".join([_COUNT.pack(len(pieces)), *heads, *(piece for _, piece in pieces)])


def unpack(payload: bytes | memoryview) -> list[tuple[int, memoryview]]:
    """The pieces of a payload. Raises ValueError where it is not one."""
    view, at = memoryview(payload), _COUNT.size
    try:
        (count,) = _COUNT.unpack_from(view)
        heads = [_PIECE.unpack_from(view, at + i * _PIECE.size) for i in range(count)]
    except struct.error as error:
        raise ValueError("not a payload") from error
    at += count * _PIECE.size
    if at + sum(size for _, size in heads) != len(view):
        raise ValueError("not a payload")
    pieces: list[tuple[int, memoryview]] = []
    for tokens, size in heads:
        pieces.append((tokens, view[at : at + size]))
        at += size
    return pieces


@dataclass(slots=True)
class _Progress:
    """The first `end` tokens are stored, as the blocks `keys`; of the next block these pieces are
    here. `tail`: up to where the sequence's end is stored."""

    keys: list[Key]
    end: int = 0
    tail: int = 0
    pieces: list[tuple[int, memoryview]] = field(default_factory=list[tuple[int, memoryview]])

    @property
    def held(self) -> int:
        """How many tokens the pieces are of."""
        return sum(tokens for tokens, _ in self.pieces)


class Stash:
    """See the module. `tree` tells what sequences hold."""

    def __init__(self, executor: Executor, tree: RadixTree, store: BlockStore) -> None:
        self._x, self._tree, self._store = executor, tree, store
        self._wanted: OrderedDict[Handle, bool] = OrderedDict()
        self._progress: dict[Handle, _Progress] = {}

    @property
    def pending(self) -> bool:
        """Whether there is something left to copy."""
        return bool(self._wanted)

    def want(self, handle: Handle, *, whole: bool) -> None:
        """Copy what the sequence holds: all of it, or its full blocks while it still grows."""
        if self._x.caps.piece and self._tree.length(handle) >= MIN_TAIL:
            self._wanted[handle] = whole

    def forget(self, handle: Handle) -> None:
        """The sequence is gone, or holds other tokens."""
        self._wanted.pop(handle, None)
        self._progress.pop(handle, None)

    def work(self) -> None:
        """Copy one piece of the sequence that has waited longest."""
        handle, whole = next(iter(self._wanted.items()))
        if not self._copy(handle, whole=whole):
            self._done(handle)

    def flush(self, handle: Handle, pieces: int | None = None) -> None:
        """Copy a sequence before it goes: all of it, or so many pieces more."""
        if self._x.caps.piece:
            progress = self._progress.get(handle)
            if progress is not None and any(k not in self._store for k in progress.keys[1:]):
                self.forget(handle)  # the store has lost some of it since
            left = count() if pieces is None else range(pieces)
            for _ in left:
                if not self._copy(handle, whole=True):
                    break
            self._done(handle)

    def keeps(self, handle: Handle) -> bool:
        """Whether the store holds what the sequence does, but for a few tokens."""
        tokens = self._tree.tokens(handle)
        return self._store.path(tokens)[1] > len(tokens) - MIN_TAIL

    def _done(self, handle: Handle) -> None:
        self._wanted.pop(handle, None)
        if (progress := self._progress.get(handle)) is not None:
            self._store.touch_path(progress.keys[-1])

    def _copy(self, handle: Handle, *, whole: bool) -> bool:
        """Copy the next piece; False where there is none, or it cannot be had."""
        tokens = self._tree.tokens(handle)
        progress = self._progress.setdefault(handle, _Progress([self._store.root]))
        self._skip_stored(progress, tokens)
        block = tokens[progress.end : progress.end + BLOCK]
        if len(block) < BLOCK:
            covered = progress.tail >= len(tokens) or len(block) < MIN_TAIL
            if not whole or covered or self._store.covers(progress.keys[-1], block):
                progress.pieces.clear()
                return False
        start = progress.end + progress.held
        end = min(start + self._x.caps.piece, progress.end + len(block))
        piece = self._x.save(handle, start, end)
        if piece is None:
            progress.pieces.clear()
            return False
        progress.pieces.append((end - start, piece))
        if progress.held == len(block):
            self._put(progress, block, end)
        return True

    def _skip_stored(self, progress: _Progress, tokens: Tokens) -> None:
        while len(tokens) - progress.end >= BLOCK:
            block = tokens[progress.end : progress.end + BLOCK]
            key = block_key(progress.keys[-1], block)
            if key not in self._store:
                return
            progress.keys.append(key)
            progress.end += BLOCK
            progress.pieces.clear()

    def _put(self, progress: _Progress, block: Tokens, end: int) -> None:
        payload = pack(progress.pieces)
        progress.pieces.clear()
        key = self._store.add_block(progress.keys[-1], block, end, payload)
        progress.tail = end
        if len(block) == BLOCK:
            progress.keys.append(key)
            progress.end = end
