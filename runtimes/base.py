"""The contracts of this room: `Runtime` (a request in, events out) and `Executor` (rows of a
step)."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from models.card import ModelCard
from models.chat import Event, Loading, Request


class LoadState(StrEnum):
    """Where a local model is in its life."""

    ABSENT = "absent"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that may be asked for. `context` is what one request may use, in tokens (None before
    the first load, where it is fitted to memory); `trained_context` is the model's own. `placement`
    says where a loaded model's layers are. `memory_bytes` is planned for it (the host's tier not
    counted), `memory` what its process holds now, by kind and by GPU. A model `writes` text unless
    it is an encoder alone; it is meant to give vectors where it `embeds`."""

    id: str
    created: int
    context: int | None
    trained_context: int
    state: LoadState
    size_bytes: int
    memory_bytes: int = 0
    expires_in_s: float | None = None
    running: int = 0
    waiting: int = 0
    placement: str = ""
    architecture: str = ""
    quantization: str = ""
    format: str = "gguf"
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    thinks: bool = False
    writes: bool = True
    embeds: bool = False


class Runtime(Protocol):
    """Anything that turns a request into tokens."""

    def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """Stream the answer; `Finished` is last. Closing the generator cancels the request within
        one engine step. Raises a `RunnerError` before the first event or between events."""
        ...


class Cut(StrEnum):
    """How far a sequence can be cut back: anywhere, anywhere its attention window is still there,
    or nowhere (recurrent state)."""

    ANY = "any"
    WINDOW = "window"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Caps:
    """What an executor can do, as data. Cells and rows are counted in tokens.

    `max_sequences` handles can be open at once; a step takes `max_rows` tokens and gives at most
    `max_outputs` rows of logits; `shares_prefix` says that forks share memory, `forks` that there
    are any. Attention memory can be saved in pieces of up to `piece` tokens (0: not at all); what
    `cut` refuses can be reached from a checkpoint where there are `checkpoints`. Idle sequences of
    `park_least` tokens or more, and up to `park_cells` together, can be parked; up to `idle_cells`
    of them in the cache cost the steps of others little. `dense`: a step costs by the highest cell
    in use, whoever uses it."""

    cut: Cut
    forks: bool
    shares_prefix: bool
    max_sequences: int
    cells: int
    max_rows: int
    max_outputs: int
    vocab_size: int
    piece: int = 0
    checkpoints: bool = False
    park_cells: int = 0
    park_least: int = 1
    idle_cells: int = 2048
    dense: bool = False


Handle = int


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step: one token is decode, more are a chunk of prefill or drafts.
    `position` is the first token's; the logits of the last `outputs` tokens are asked for."""

    handle: Handle
    tokens: Sequence[int] | NDArray[np.int32]
    position: int
    outputs: int


class Logits(Protocol):
    """The logits that a step's rows asked for, in their order."""

    def row(self, index: int) -> NDArray[np.float32]:
        """The live row [vocab], writable, valid until the next step."""
        ...

    def rows(self) -> NDArray[np.float32]:
        """All of them, [rows, vocab]: the same live memory. There is at least one."""
        ...


Pick = Callable[[Logits], None]


class CellsExhausted(Exception):
    """The KV cache has no room for a step. Nothing of the step was applied."""


class Executor(Protocol):
    """A model with its KV cache. All calls come from the one thread that loaded it."""

    @property
    def caps(self) -> Caps: ...

    def open(self) -> Handle:
        """A new empty sequence. Raises IndexError when `max_sequences` are open."""
        ...

    def fork(self, source: Handle, length: int) -> Handle | None:
        """A new sequence holding the first `length` tokens of `source`, or None where that cannot
        be proven right (window gone, recurrent state of another position)."""
        ...

    def cut(self, handle: Handle, length: int) -> bool:
        """Drop all tokens from `length` on. False, and nothing changed, where it is not
        possible."""
        ...

    def borrow(self, source: Handle, length: int) -> Handle | None:
        """A new sequence sharing the attention memory of `source`'s first `length` tokens. Nothing
        may be computed with it before `restore`. None where there is no such memory."""
        ...

    def save(self, handle: Handle, start: int, end: int) -> memoryview | None:
        """A copy of the attention memory of [start, end), at most `caps.piece` tokens, that `load`
        can read in any process with the same model and settings. None where it cannot be had."""
        ...

    def load(self, handle: Handle, start: int, end: int, piece: memoryview) -> bool:
        """Append the saved memory of [start, end) to a sequence of `start` tokens. False, and
        nothing changed, where it is refused or there is no room."""
        ...

    def checkpoint(self, handle: Handle) -> memoryview | None:
        """A copy of what memory knows at the sequence's end and cannot be cut. None where there is
        no such thing."""
        ...

    def restore(self, handle: Handle, length: int, checkpoint: memoryview) -> bool:
        """Put the sequence's end at `length`, where `checkpoint` was taken after the same tokens;
        attention memory, where the model has any, must be there up to `length` at least. False
        where it is refused: the sequence is then good for nothing but `close`."""
        ...

    def park(self, handle: Handle) -> bool:
        """Move a sequence's memory out of the cache, near the device. It takes no cells, and can
        only be closed or unparked. False, and nothing changed, where that is not possible."""
        ...

    def unpark(self, handle: Handle) -> bool:
        """Bring a parked sequence back. False, and it stays parked, where there is no room."""
        ...

    def share(self, source: Handle, target: Handle, start: int, end: int) -> bool:
        """Let `target` use `source`'s memory for [start, end), where both hold the same tokens.
        False where the kind of memory does not allow it."""
        ...

    def close(self, handle: Handle) -> None:
        """Forget a sequence; memory no other sequence shares becomes free."""
        ...

    def step(self, rows: Sequence[Row], pick: Pick) -> None:
        """Run one forward over `rows`; `pick` is called once it has been launched.
        Raises CellsExhausted, or EngineFailed when the model cannot go on."""
        ...

    def release(self) -> None:
        """Free everything; no call may follow."""
        ...


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters of one loaded model since its load; the last block are present values.

    `prompt_rows` counts prompt tokens that went through the model; `prompt_tokens` counts those
    that were asked for, `cached_tokens` those of them that needed no computing. `restored_host` and
    `restored_disk` count pieces of memory brought back from there; `stored` are all known ones."""

    steps: int = 0
    prompt_rows: int = 0
    decode_rows: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    cancelled: int = 0
    evictions: int = 0
    preemptions: int = 0
    drafted: int = 0
    drafts_accepted: int = 0
    forced: int = 0
    restored_host: int = 0
    restored_disk: int = 0
    running: int = 0
    waiting: int = 0
    cells: int = 0
    cells_used: int = 0
    sequences_idle: int = 0
    cells_parked: int = 0
    host_bytes: int = 0
    stored: int = 0


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """A loaded model's tokenizer. `bos` and `eos` are texts, "" where the model has none; texts
    begin with the first where it `adds_bos`. `context` is what one request may use, in tokens."""

    size: int
    bos: str
    eos: str
    adds_bos: bool
    context: int
    chat_template: str


class Tokenizer(Protocol):
    """Text to tokens and back, as a loaded model does it."""

    @property
    def tokenizer_info(self) -> TokenizerInfo: ...

    async def encode(self, text: str, *, add_special: bool, parse_special: bool) -> tuple[int, ...]:
        """Text of any length to tokens: with what starts a text or without, with markup as markup
        or as plain text."""
        ...

    def pieces(self, tokens: Sequence[int]) -> list[bytes]:
        """What tokens stand for. Raises RequestInvalid for ids that are none."""
        ...


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Vectors of texts, [texts, size], as the model gives them; `tokens` were read for them."""

    vectors: NDArray[np.float32]
    tokens: int


class ModelHost(Runtime, Protocol):
    """All local models as one runtime: loads on first use, unloads when idle or short of memory."""

    def models(self) -> list[ModelInfo]:
        """Everything that may be asked for, loaded or not."""
        ...

    def card(self, model: str) -> ModelCard:
        """What is known of a model by its name. Raises ModelNotFound. May read the disk."""
        ...

    async def tokens(self, request: Request) -> tuple[int, ...]:
        """The request's prompt in the model's vocabulary, which is loaded for it. Raises a
        `RunnerError`."""
        ...

    def tokenizer(self, model: str) -> AbstractAsyncContextManager[Tokenizer]:
        """A model's tokenizer. The model is loaded for it, and stays so inside. Entering raises a
        `RunnerError`."""
        ...

    async def embed(
        self, model: str, texts: Sequence[str | tuple[int, ...]], *, truncate: bool
    ) -> Embeddings:
        """Texts, or their tokens, to vectors; what is too long loses its end with `truncate`. The
        model is loaded for it. Raises ContextOverflow without `truncate`, or another
        `RunnerError`."""
        ...

    def loading(self) -> bool:
        """Whether any model is being loaded right now."""
        ...

    def stats(self) -> dict[str, EngineStats]:
        """Counters by model id, of the loaded models."""
        ...

    def load(self, model: str) -> AsyncGenerator[Loading, None]:
        """Load a model ahead of its first request, with progress. Raises a `RunnerError`."""
        ...

    async def unload(self, model: str) -> None:
        """Free a model's memory once its running requests have ended. Raises ModelNotFound."""
        ...

    async def close(self) -> None:
        """Unload everything and end every worker process."""
        ...
