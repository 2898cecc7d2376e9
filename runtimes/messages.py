"""What travels over the pipe between the server and a model's worker process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from models.chat import Constraint, FinishReason, Priority, Sampling
from models.kv import KvType
from runtimes.base import EngineStats

# The keys of `Ready.memory` that are kinds; the others are names of GPUs.
MEMORY_KINDS = frozenset({"weights", "kv", "state", "compute", "outputs"})


@dataclass(frozen=True, slots=True)
class DiskSpec:
    """Where KV memory is kept on disk: `size` bytes at most for all models together, each piece for
    `retention_s` seconds after its last use."""

    folder: Path
    size: int
    retention_s: float


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """How to load a model. `executor` names the function that does it (`module:function`).

    `context` is what one request may use, `cells` what all sequences together may, in tokens;
    `parallel` how many requests run at once; `quiet` of them may run in a cache of their own, where
    arithmetic repeats. `extra_buffers` lets the CPU backend repack weights
    for wider instructions (faster prefill; traps on processors that advertise AMX without allowing
    it). `files` are all of the model's. `gpu_layers` -1 puts as many layers on the GPUs as fit; for
    that cells may be given up, down to `least_context` (0: down to `context`). Memory that has left
    the cache is kept in `host_cache_bytes` of RAM and on `disk`. With `drafts`, tokens are guessed
    from a request's own text where that is faster, and by the model `draft`.
    """

    executor: str
    path: Path
    context: int
    cells: int
    parallel: int
    threads: int
    quiet: int = 0
    swa_full: bool = True
    extra_buffers: bool = True
    gpu_layers: int = -1
    host_cache_bytes: int = 0
    disk: DiskSpec | None = None
    drafts: bool = True
    draft: "LoadSpec | None" = None
    files: tuple[Path, ...] = ()
    kv_type: KvType = KvType.F16
    least_context: int = 0


@dataclass(frozen=True, slots=True)
class Vocab:
    """A model's vocabulary: the bytes of each token id, those that end a turn, and what starts one.

    `bos_text` is "" where the model has no such token. `control` ids are markup, not text."""

    pieces: tuple[bytes, ...]
    end_ids: frozenset[int]
    control_ids: frozenset[int]
    bos_id: int
    eos_id: int
    bos_text: str
    eos_text: str
    adds_bos: bool
    fill: tuple[int, int, int] | None = None
    """The marks before a text, before what follows it, and before what belongs between them, where
    the model was trained to fill in."""


@dataclass(frozen=True, slots=True)
class Thought:
    """The marks around reasoning with which an answer may begin, as `models.dialects.spelling`
    writes them. `opened`: the prompt has opened it already."""

    start: bytes
    end: bytes
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Guide:
    """What an answer is held to, and from where on: after the `thought`, and where there are
    `triggers`, from the first of these on, which may never come. `beginning`: they count only where
    the answer begins. Where `constraint` cannot be enforced, `fallback` is."""

    constraint: Constraint
    fallback: Constraint | None = None
    thought: Thought | None = None
    triggers: tuple[bytes, ...] = ()
    beginning: bool = False


# ---------------------------------------------------------------------- to the worker


@dataclass(frozen=True, slots=True)
class Submit:
    """Run a prompt. `exact` asks for arithmetic that does not depend on what else runs. At the
    positions `boundaries` messages begin: there an edit or a retry will branch off. With
    `prompt_logprobs` alternatives, it is also told how likely each of the prompt's tokens was."""

    id: int
    tokens: tuple[int, ...]
    sampling: Sampling
    max_tokens: int
    logprobs: int | None
    guide: Guide | None
    exact: bool
    boundaries: tuple[int, ...] = ()
    priority: Priority = Priority.INTERACTIVE
    prompt_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a request; what it computed stays in the cache."""

    id: int


@dataclass(frozen=True, slots=True)
class Encode:
    """Turn text into token ids. `specials`: markup in the text becomes its token."""

    id: int
    text: str
    add_bos: bool
    specials: bool


@dataclass(frozen=True, slots=True)
class Embed:
    """Turn texts, given as tokens, into vectors."""

    id: int
    texts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process."""


# ---------------------------------------------------------------------- from the worker


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`fraction` of the weights are in memory."""

    fraction: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The model answers. `memory` is bytes by kind, and by GPU where there is one; `placement` says
    where the layers are. A model that `writes` generates text; texts of up to `embeds` tokens it
    can turn into vectors of `vector_size` numbers (0: not at all)."""

    vocab: Vocab
    context: int
    cells: int
    memory: dict[str, int]
    placement: str = ""
    writes: bool = True
    embeds: int = 0
    vector_size: int = 0


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The model could not be loaded."""

    message: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person should know."""

    text: str


@dataclass(frozen=True, slots=True)
class Encoded:
    """The answer to `Encode`."""

    id: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Embedded:
    """The answer to `Embed`: float32 numbers, vector after vector; or why there are none."""

    id: int
    vectors: bytes
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request that cannot be run, for example for a schema nobody can enforce."""

    id: int
    message: str
    param: str | None = None


class NewToken(NamedTuple):
    """A generated token; `top` are the most likely ids with their logprobs, if asked for. There are
    as many as streams in every step: a tuple crosses the pipe in a third of a dataclass's time."""

    id: int
    token: int
    logprob: float = 0.0
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """`done` of the prompt's tokens are in the cache, `cached` of them found there."""

    id: int
    done: int
    cached: int


class Scored(NamedTuple):
    """Logprob and likeliest alternatives of a prompt's tokens from `position` on."""

    id: int
    position: int
    tokens: tuple[tuple[float, tuple[tuple[int, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A request is over; `cached` of its prompt's tokens needed no computing."""

    id: int
    reason: FinishReason
    cached: int


@dataclass(frozen=True, slots=True)
class StepDone:
    """All that one engine step brought, in one message."""

    tokens: tuple[NewToken, ...] = ()
    prefill: tuple[PrefillProgress, ...] = ()
    scored: tuple[Scored, ...] = ()
    ended: tuple[JobEnd, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    stats: EngineStats = field(default_factory=EngineStats)


ToWorker = Submit | Cancel | Encode | Embed | Stop
FromWorker = LoadProgress | Ready | LoadFailed | Notice | Encoded | Embedded | StepDone
