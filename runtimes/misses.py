"""Why a prompt was not found in the cache further than it was: which of its tokens is the first
that no earlier prompt had, or what had to leave."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from models.chat import Miss, MissReason
from runtimes.radix import Tokens, common_prefix

# So many of the newest prompts are compared with, and so many of their tokens kept.
_PROMPTS = 64
_TOKENS = 1 << 20
# A match that ends so close to where it could is no miss: the last token is always computed, and
# nobody waits for a few that another is about to compute.
_NEAR = 17


class Misses:
    """Remembers the newest prompts of one model, with their answers."""

    def __init__(self) -> None:
        self._seen: deque[Tokens] = deque()
        self._size = 0

    def explain(self, prompt: Sequence[int], boundaries: Sequence[int], cached: int) -> Miss | None:
        """Why only `cached` tokens of a prompt were found; None where that was all of it. Messages
        begin at the positions `boundaries`."""
        tokens = np.array(prompt, np.int32)
        if cached >= len(tokens) - _NEAR:
            return None
        known = max((common_prefix(tokens, seen) for seen in self._seen), default=0)
        if not known:
            reason = MissReason.NEW
        elif known > cached + _NEAR:
            reason = MissReason.GONE
        else:
            reason = MissReason.DIFFERS
        at = cached if reason is MissReason.GONE else max(known, cached)
        return Miss(at, sum(at >= begin for begin in boundaries), reason)

    def remember(self, tokens: Sequence[int]) -> None:
        """A prompt was answered; `tokens` are both."""
        seen = np.array(tokens, np.int32)
        self._seen.append(seen)
        self._size += len(seen)
        while len(self._seen) > _PROMPTS or (self._size > _TOKENS and len(self._seen) > 1):
            self._size -= len(self._seen.popleft())
