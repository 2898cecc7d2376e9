"""Memory: what this machine has, what a model needs, and which context fits."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models.header import GgufHeader
from models.kv import KvType

# Sequences that a loaded model keeps besides the running ones, to be continued and branched from. A
# recurrent model pays a state for each.
IDLE_SEQUENCES = 16
IDLE_STATES = 8

_PARALLEL = 8  # requests at once where nobody says
_UBATCH = 512  # tokens that one forward computes at most
_PAD = 256  # llama.cpp rounds a cache's cells up to this
_FIXED = 64 << 20  # graph, scheduler and backend buffers
_LEAST_CONTEXT = 512
_UNKNOWN_CONTEXT = 4096  # where the file does not say how long it was trained


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes this process may use, now and at most."""

    available: int
    total: int


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes a loaded model takes, by kind: `kv` for its cells, `state` for the recurrent state of
    all sequences, `compute` while it runs, `outputs` for the logits that are handed out."""

    weights: int
    kv: int
    state: int
    compute: int
    outputs: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.state + self.compute + self.outputs

    def __str__(self) -> str:
        kinds = {
            "weights": self.weights,
            "cache": self.kv + self.state,
            "computing": self.compute + self.outputs,
        }
        return ", ".join(f"{kind} {human_bytes(size)}" for kind, size in kinds.items())


def machine_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> Memory:
    """Memory of the machine, or of the container where that is less."""
    import psutil

    memory = psutil.virtual_memory()
    available, total = int(memory.available), int(memory.total)
    for limit, used in _cgroup_limits(cgroup):
        total = min(total, limit)
        available = min(available, max(0, limit - used))
    return Memory(available, total)


def _cgroup_limits(root: Path) -> list[tuple[int, int]]:
    """(limit, used) of each control group this process is in. Page cache counts as free: the
    kernel drops it first."""
    found: list[tuple[int, int]] = []
    for folder in (root, root / "memory"):
        limit = _number(folder / "memory.max") or _number(folder / "memory.limit_in_bytes")
        used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes")
        if limit and limit < 1 << 62:
            found.append((limit, max(0, (used or 0) - _file_cache(folder / "memory.stat"))))
    return found


def _file_cache(stat: Path) -> int:
    try:
        words = [line.split() for line in stat.read_text().splitlines()]
    except OSError:
        return 0
    sizes = {pair[0]: int(pair[1]) for pair in words if len(pair) == 2 and pair[1].isdigit()}
    return sum(sizes.get(k, 0) for k in ("inactive_file", "active_file")) or sizes.get(
        "total_cache", 0
    )


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def kept_sequences(header: GgufHeader, parallel: int = _PARALLEL) -> int:
    """Sequences that a loaded model holds at most, running and idle."""
    return parallel + (IDLE_STATES if header.recurrent_bytes_per_sequence else IDLE_SEQUENCES)


def layer_bytes(
    header: GgufHeader, cells: int, sequences: int, kv_type: KvType, *, full_window: bool = False
) -> tuple[int, ...]:
    """The cache of each block. A sliding-window block keeps min(cells, window x sequences + one
    batch), which is what llama.cpp allocates, or with `full_window` all cells."""
    cells = _padded(cells)
    window = cells if full_window else min(cells, _window_cells(header, sequences))
    return tuple(
        int(
            layer.elements_per_token
            * (window if layer.windowed else cells)
            * kv_type.bytes_per_element
        )
        for layer in header.layers()
    )


def estimate(
    header: GgufHeader,
    cells: int,
    *,
    sequences: int | None = None,
    kv_type: KvType = KvType.F16,
    weights_bytes: int | None = None,
    full_window: bool = False,
) -> Need:
    """What the model takes with a cache of `cells` tokens for `sequences` (None: those of eight
    requests at once). A split model's `weights_bytes` are those of all its files.

    Compute: a forward of 512 tokens keeps, at 32 bits, about four activations as wide as the
    feed-forward part and eight as wide as the embedding; the attention mask of each cache once at
    32 and once at 16 bits; and a row of logits for each sequence id, which are handed out in a
    buffer of the same size. Flash attention never holds the scores themselves. (Without the
    logits, llama.cpp reserves 2 MiB for 135M parameters at 16k cells, where this says 134: unknown
    graphs and backends take more.)
    """
    held = kept_sequences(header) if sequences is None else sequences
    cells = _padded(max(1, cells))
    if not header.writes:
        held, cells = 1, _UBATCH  # nothing is kept of a text that was read
    kv = sum(layer_bytes(header, cells, held, kv_type, full_window=full_window))
    masked = cells
    if header.sliding_window:
        masked += cells if full_window else min(cells, _window_cells(header, held))
    # A window that is kept whole has a second id for each sequence (runtimes/llamacpp/executor.py).
    # One more passes states through.
    ids = (2 * held if header.sliding_window and full_window else held) + 1
    outputs = ids * 4 * header.vocabulary_size
    width = 4 * max(header.feed_forward_length, header.embedding_length)
    width += 8 * header.embedding_length
    return Need(
        weights=header.file_size if weights_bytes is None else weights_bytes,
        kv=kv,
        state=header.recurrent_bytes_per_sequence * (held + 1),
        compute=_FIXED + _UBATCH * 4 * width + masked * _UBATCH * 6 + outputs,
        outputs=outputs,
    )


def largest_context(
    header: GgufHeader,
    budget_bytes: int,
    *,
    sequences: int | None = None,
    kv_type: KvType = KvType.F16,
    weights_bytes: int | None = None,
) -> int:
    """The longest context, up to the trained one, that fits; 0 where not even 512 tokens do."""

    def fits(context: int) -> bool:
        need = estimate(
            header, context, sequences=sequences, kv_type=kv_type, weights_bytes=weights_bytes
        )
        return need.total <= budget_bytes

    most = min(header.context_length or _UNKNOWN_CONTEXT, 1 << 27)
    least = min(_LEAST_CONTEXT, most)
    if not fits(least):
        return 0
    return most if fits(most) else _last_true(fits, least, most)


def _last_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last number for which a falling condition holds, to the nearest 256; it holds at `low`
    and not at `high`."""
    while high - low > _PAD:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return max(_PAD, low // _PAD * _PAD)


def sentence(
    header: GgufHeader,
    memory: Memory,
    weights_bytes: int | None = None,
    kv_type: KvType = KvType.F16,
) -> str:
    """Whether the model fits this machine, for a person."""
    trained = header.context_length
    context = largest_context(
        header, memory.available, weights_bytes=weights_bytes, kv_type=kv_type
    )
    free = f"{human_bytes(memory.available)} of memory are free"
    asked = context or min(2048, trained or 2048)
    need = estimate(header, asked, weights_bytes=weights_bytes, kv_type=kv_type)
    if not context:
        return f"does not fit: it needs about {human_bytes(need.total)}, and {free}"
    if context >= trained:
        return f"fits with its whole context of {context:,} tokens, and {free}"
    return f"fits with a context of {context:,} of its {trained:,} tokens, and {free}"


def human_bytes(num_bytes: float) -> str:
    """A size as people write it, in powers of 1000 as the hub and the disk do."""
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} GB" if num_bytes < 100 else f"{num_bytes:.0f} GB"


def _window_cells(header: GgufHeader, sequences: int) -> int:
    return _padded(header.sliding_window * sequences + _UBATCH)


def _padded(cells: int) -> int:
    return -(-cells // _PAD) * _PAD
