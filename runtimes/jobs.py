"""One request inside the engine, from the queue to its last token."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from models.chat import Priority
from runtimes.base import Handle
from runtimes.blocks import Fetch
from runtimes.drafting import Drafting
from runtimes.radix import RadixTree, Tokens
from runtimes.sampling import Sampler


class JobState(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    ENDED = "ended"


@dataclass(slots=True)
class Restoring:
    """What a job waits for before it computes: `fetch` brings the memory up to `length`."""

    fetch: Fetch
    length: int


@dataclass(slots=True, eq=False)
class Job:
    """`prompt` and the answer so far are the `known` tokens; the first `computed` of them are in
    the sequence `handle`. `cached` counts those that were there when the job started.

    `stops`: positions at which a prefill chunk must end; `checkpoints`: those of them at which
    memory that cannot be cut is to be kept. `restoring`: memory on its way from another tier,
    before anything is computed. `due`: see `Scheduler.plan`. `alternatives`: how many to tell with
    each prompt token's logprob (None: these are not asked for)."""

    id: int
    prompt: Tokens
    max_tokens: int
    sampler: Sampler
    state: JobState = JobState.WAITING
    handle: Handle | None = None
    computed: int = 0
    cached: int = 0
    generated: int = 0
    settled: bool = False
    priority: Priority = Priority.INTERACTIVE
    submitted_at: float = 0.0
    admitted_at: float = 0.0
    checkpoints: frozenset[int] = frozenset()
    restoring: Restoring | None = None
    draftings: tuple[Drafting, ...] = ()
    stops: set[int] = field(default_factory=set[int])
    due: int | None = None
    alternatives: int | None = None
    kept_logits: NDArray[np.float32] | None = None
    _buffer: Tokens = field(default_factory=lambda: np.empty(0, np.int32))

    @property
    def prompt_length(self) -> int:
        return len(self.prompt)

    @property
    def known(self) -> Tokens:
        """The prompt and the answer so far (a view)."""
        if not len(self._buffer):
            return self.prompt
        return self._buffer[: len(self.prompt) + self.generated]

    @property
    def pending(self) -> int:
        """How many known tokens have not been computed."""
        return len(self.prompt) + self.generated - self.computed

    @property
    def scoring(self) -> bool:
        """Whether the logits behind every token are asked for, and not only the last one's."""
        reading = not self.generated and self.computed < len(self.prompt)
        return self.alternatives is not None and reading

    def append(self, token: int) -> None:
        """Add a generated token."""
        end = len(self.prompt) + self.generated
        if end >= len(self._buffer):
            grown = np.empty(end + max(64, end // 2), np.int32)
            grown[:end] = self.known
            self._buffer = grown
        self._buffer[end] = token
        self.generated += 1

    def start(self, handle: Handle, length: int) -> None:
        """The job holds a sequence with its first `length` tokens, and reads the rest."""
        self.handle, self.computed = handle, length
        self.state = JobState.PREFILL if self.pending else JobState.DECODE
        self.stops |= {p for p in self.checkpoints if p > length}

    def settle(self) -> None:
        """All that could be reused is in place."""
        self.restoring = None
        if self.computed < len(self.prompt):
            self.kept_logits = None
        self.state = JobState.PREFILL if self.pending else JobState.DECODE
        if not self.settled:
            self.settled = True
            self.cached = min(self.computed, len(self.prompt))

    def back_to_queue(self) -> None:
        """Its memory was taken; it will be read again, the answer so far included."""
        self.handle, self.computed, self.state = None, 0, JobState.WAITING
        self.restoring = None
        self.stops.clear()

    def next_stop(self) -> int | None:
        """The next position at which a chunk must end, if one lies ahead."""
        return min((s for s in self.stops if s > self.computed), default=None)

    def take_kept_logits(self, tree: RadixTree) -> bool:
        """Find the logits kept at the end of exactly this prompt."""
        kept = tree.marked(self.prompt) if not self.generated else None
        self.kept_logits = kept if isinstance(kept, np.ndarray) else None
        return self.kept_logits is not None
