"""Where a prompt's memory can come from: a live sequence, stored blocks, a checkpoint."""

from collections.abc import Iterator
from dataclasses import dataclass

from runtimes.base import Caps, Cut, Handle
from runtimes.blocks import BLOCK, BlockStore
from runtimes.kvfiles import Entry
from runtimes.radix import RadixTree, Tokens

# Bringing memory back costs a little: below this many tokens computing them is as good.
MIN_GAIN = 16
# A block is brought back whole: it must be of use in this share of its tokens.
WORTH = 0.25


@dataclass(frozen=True, slots=True)
class Source:
    """A job can begin at `length`: with the first `live` tokens of the sequence `handle`, then the
    stored `entries` (blocks; at last a checkpoint where memory cannot be cut)."""

    length: int = 0
    handle: Handle | None = None
    live: int = 0
    entries: tuple[Entry, ...] = ()


class Finder:
    """Answers for one cache. With a `grid`, only its multiples count."""

    def __init__(self, caps: Caps, tree: RadixTree, store: BlockStore | None, grid: int) -> None:
        self._caps, self._tree, self._store, self._grid = caps, tree, store, grid

    def live(self, tokens: Tokens, limit: int) -> Source:
        """The most of `tokens`, up to `limit`, that a live sequence can be continued from."""
        if self._caps.cut is Cut.NONE:
            return next(self._whole(tokens, limit), Source())
        found = self._tree.match(tokens)
        length = min(found.length, limit) // self._grid * self._grid
        return Source(length, found.handle, length)

    def best(self, tokens: Tokens, limit: int) -> Source:
        """The most of `tokens`, up to `limit`, that can be had without computing it."""
        live = self.live(tokens, limit)
        return self.stored(tokens, limit, live) or live

    def stored(self, tokens: Tokens, limit: int, live: Source) -> Source | None:
        """What the store has beyond a `live` source, if that is worth its while."""
        if self._store is None:
            return None
        if self._caps.checkpoints:
            return self._from_checkpoint(self._store, tokens, live, limit)
        return self._from_blocks(self._store, tokens, live, limit)

    def _whole(self, tokens: Tokens, limit: int) -> Iterator[Source]:
        for match in self._tree.ends_on(tokens):
            if match.length <= limit and match.length % self._grid == 0:
                yield Source(match.length, match.handle, match.length)

    def _from_blocks(
        self, store: BlockStore, tokens: Tokens, live: Source, limit: int
    ) -> Source | None:
        """Blocks on top of what is live, down to the block's start."""
        if not self._caps.piece:
            return None
        path, length = store.path(tokens)
        length = min(length, limit)
        if path and length - (path[-1].end - len(path[-1].tokens)) < WORTH * len(path[-1].tokens):
            path = path[:-1]
            length = path[-1].end if path else 0
        if length < live.length + MIN_GAIN:
            return None
        base = live.length // BLOCK
        entries = tuple(e for e in path[base:] if e.end - len(e.tokens) < length)
        return Source(length, live.handle if base else None, base * BLOCK, entries)

    def _from_checkpoint(
        self, store: BlockStore, tokens: Tokens, live: Source, limit: int
    ) -> Source | None:
        """A checkpoint, over the attention memory of a live sequence or of blocks."""
        least = live.length + MIN_GAIN - 1
        while (point := store.checkpoint(tokens, least, limit)) is not None:
            if not self._caps.piece:
                return Source(point.end, entries=(point,))
            held = self._tree.match(tokens)
            if held.length >= point.end:
                return Source(point.end, held.handle, point.end, (point,))
            path, length = store.path(tokens[: point.end])
            if length == point.end:
                return Source(point.end, entries=(*path, point))
            limit = min(point.end - 1, max(length, held.length))
        return None
