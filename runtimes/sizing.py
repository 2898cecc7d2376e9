"""How large a model's cache is made: from what the user asked for, and the memory there is."""

from dataclasses import dataclass

from models.card import ModelCard
from models.errors import DoesNotFit
from models.fit import estimate, human_bytes, largest_context
from models.header import GgufHeader

# With no --ctx, the cache takes at most this share of the memory left beside the weights.
DEFAULT_SHARE = 0.4
# Cells beyond one context, for requests that run at once and for finished ones that are kept.
EXTRA_CELLS = 16384
# Requests whose arithmetic must repeat run in caches of their own, so many at once at most.
QUIET_PLACES = 2
_CELL_STEP = 256
# Sequences that a windowed cache must hold apart; so many that no window is smaller than the cache.
_ALL = 1 << 20


@dataclass(frozen=True, slots=True)
class CacheSize:
    """`context` tokens for one request, `cells` for all; `bytes` of memory with the weights. With
    `full_window` a sliding-window model keeps every cell, so that it can be forked anywhere. For
    `quiet` requests there is room in caches of their own; `bytes` includes these."""

    context: int
    cells: int
    bytes: int
    full_window: bool
    quiet: int


def size_cache(
    card: ModelCard, header: GgufHeader, *, budget: int, ctx: int | None, parallel: int
) -> CacheSize:
    """Fit a model's cache into `budget` bytes. With `ctx` the context is exactly that, or
    DoesNotFit is raised with the numbers; without, it is the model's own, shrunk to what fits.
    Cells beyond one context are taken as far as they fit. A windowed cache is kept whole where
    that costs no context."""

    def need(cells: int, sequences: int) -> int:
        return estimate(header, cells, weights_bytes=card.size_bytes, sequences=sequences).total

    least = need(_CELL_STEP, _ALL)
    allowed = budget if ctx else least + int((budget - least) * DEFAULT_SHARE)
    context = (
        ctx
        or largest_context(header, allowed, weights_bytes=card.size_bytes)
        or largest_context(header, budget, weights_bytes=card.size_bytes)
    )
    kept = parallel + 16  # sequences the executor holds at most, running and idle
    if not context or need(context, kept) > budget:
        asked = context or min(2048, card.context_length or 2048)
        raise DoesNotFit(
            f"{card.id} needs {human_bytes(need(asked, kept))} with a context of {asked} tokens, "
            f"and {human_bytes(max(0, budget))} are free for models. Use a smaller --ctx, a "
            "smaller quantization, or unload another model."
        )
    full = need(context, _ALL) <= budget
    sequences = _ALL if full else kept
    cells = min(context * parallel, context + EXTRA_CELLS)
    while cells > context and need(cells, sequences) > max(allowed, need(context, sequences)):
        cells -= _CELL_STEP
    taken = need(cells, sequences)
    one = estimate(header, context, weights_bytes=0).total
    quiet = min(QUIET_PLACES, max(0, budget - taken) // one)
    return CacheSize(context, max(context, cells), taken + quiet * one, full, quiet)
