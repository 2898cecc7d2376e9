"""Memory: what this machine has, what a model needs, and which context fits."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from models.header import GgufHeader

_UBATCH = 512  # tokens that one forward computes at most
_OUTPUTS = 64  # rows of logits that one forward gives at most
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
    """Bytes a loaded model takes, by kind."""

    weights: int
    kv: int
    compute: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.compute


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


def estimate(
    header: GgufHeader,
    context: int,
    parallel: int = 1,
    kv_type_bytes: float = 2,
    weights_bytes: int | None = None,
    sequences: int = 32,
) -> Need:
    """What the model takes with `parallel` requests of `context` tokens each. A split model's
    `weights_bytes` are those of all its files; `sequences` are kept besides, to be branched from.

    Cache: every block holds its keys and values for all cells, a sliding-window block only for
    min(cells, window x sequences + one batch): that is what llama.cpp allocates.

    Compute: a forward of 512 tokens keeps, at 32 bits, about four activations as wide as the
    feed-forward part and eight as wide as the embedding; the attention mask once at 32 and once at
    16 bits for all cells; and 64 rows of logits, once computed and once handed out. Flash
    attention never holds the scores themselves. (Without the logits, llama.cpp reserves 2 MiB for
    135M parameters at 16k cells, where this says 134: unknown graphs and backends take more.)
    """
    cells = _padded(max(1, context) * max(1, parallel))
    window = _padded(header.sliding_window * max(parallel, sequences) + _UBATCH)
    kv = 0.0
    for layer in header.layers():
        kept = min(cells, window) if layer.windowed else cells
        kv += layer.elements_per_token * kept * kv_type_bytes
    kv += header.recurrent_bytes_per_sequence * max(parallel, 8)
    width = 4 * max(header.feed_forward_length, header.embedding_length)
    width += 8 * header.embedding_length
    compute = _FIXED + _UBATCH * 4 * width + cells * _UBATCH * 6
    compute += 2 * _OUTPUTS * 4 * header.vocabulary_size
    return Need(header.file_size if weights_bytes is None else weights_bytes, int(kv), compute)


def largest_context(
    header: GgufHeader,
    budget_bytes: int,
    parallel: int = 1,
    kv_type_bytes: float = 2,
    weights_bytes: int | None = None,
) -> int:
    """The longest context, up to the trained one, that fits; 0 where not even 512 tokens do."""

    def fits(context: int) -> bool:
        need = estimate(header, context, parallel, kv_type_bytes, weights_bytes)
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


def sentence(header: GgufHeader, memory: Memory, weights_bytes: int | None = None) -> str:
    """Whether the model fits this machine, for a person."""
    trained = header.context_length
    context = largest_context(header, memory.available, weights_bytes=weights_bytes)
    free = f"{human_bytes(memory.available)} of memory are free"
    need = estimate(header, context or min(2048, trained or 2048), 1, 2, weights_bytes)
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


def _padded(cells: int) -> int:
    return -(-cells // _PAD) * _PAD
