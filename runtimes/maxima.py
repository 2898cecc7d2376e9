"""Rows of logits in blocks: a block's maximum bounds its entries, its sum is their mass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ints = NDArray[np.int64]

# Entries in a block whose masses are added up: the blocks are then few enough to search, and the
# sum of so few float32 values is right to seven digits.
_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block j of `width` holds the entries j, j + width, j + 2 width, ... of a row of `size`.

    Neighbours in memory lie in different blocks, so that a fold is a few passes over whole vectors:
    ten times as fast as maxima of 64 neighbours."""

    size: int
    width: int

    @property
    def depth(self) -> int:
        """How many entries the first blocks have."""
        return -(-self.size // self.width)

    def fold(self, operation: np.ufunc, row: Floats, out: Floats) -> None:
        """Reduce each block of `row` [size] by `operation` (maximum, add) into `out` [width]."""
        layers = self.size // self.width
        whole = layers * self.width
        operation.reduce(row[:whole].reshape(layers, self.width), axis=0, out=out)
        if rest := self.size - whole:
            operation(out[:rest], row[whole:], out=out[:rest])

    def members(self, blocks: Ints) -> Ints:
        """The entries of each of the blocks, one block a row. Those not below `size` do not
        exist."""
        starts = np.arange(0, self.size, self.width, dtype=np.int64)
        return blocks[:, None] + starts


@dataclass(frozen=True, slots=True)
class Masses:
    """The mass of each row's blocks, exp((logit - peak) / temperature) summed, added up from left
    to right: `cumulative` [rows, width]."""

    blocks: Blocks
    cumulative: Doubles

    @property
    def totals(self) -> Doubles:
        return self.cumulative[:, -1]


def masses(logits: Floats, rows: Sequence[int], peaks: Doubles, temperatures: Doubles) -> Masses:
    """The masses of some rows of `logits`. Each row is summed by itself, in an order that depends
    on the vocabulary alone: its figures are the same in any company."""
    size = logits.shape[1]
    blocks = Blocks(size, max(1, size // _DEPTH))
    sums = np.empty((len(rows), blocks.width), np.float32)

    scratch = np.empty(size, np.float32)
    with np.errstate(all="ignore"):
        for i, row in enumerate(rows):
            np.subtract(logits[row], np.float32(peaks[i]), out=scratch)
            if temperatures[i] != 1.0:
                np.divide(scratch, np.float32(temperatures[i]), out=scratch)
            np.exp(scratch, out=scratch)
            blocks.fold(np.add, scratch, sums[i])
    return Masses(blocks, np.cumsum(sums, axis=1, dtype=np.float64))
