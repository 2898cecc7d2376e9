"""A request's stream of random numbers, taken from the generator in blocks."""

import numpy as np

_BLOCK = 64


class Uniforms:
    """Numbers in [0, 1). The stream depends on the seed alone, not on how it is read."""

    def __init__(self, seed: int | None) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._ahead: list[float] = []
        self._at = 0

    def peek(self, count: int) -> list[float]:
        """The next `count` numbers, which stay the next."""
        if self._at + count > len(self._ahead):
            self._ahead = self._ahead[self._at :]
            self._at = 0
            self._ahead += self._generator.random(max(_BLOCK, count)).tolist()
        return self._ahead[self._at : self._at + count]

    def skip(self, count: int) -> None:
        """Go on by `count` numbers that were peeked at."""
        self._at += count
