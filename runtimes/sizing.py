"""How large a model's cache is made: from what the user asked for, and the memory there is."""

from dataclasses import dataclass

from models.card import ModelCard
from models.errors import DoesNotFit
from models.header import GgufHeader

# Under this many tokens nothing useful fits; asked for or not, less is refused.
MIN_CONTEXT = 512
# With no --ctx, the cache takes at most this share of the memory left beside the weights.
DEFAULT_SHARE = 0.4
# Cells beyond one context, for requests that run at once and for finished ones that are kept.
EXTRA_CELLS = 16384
# Beside weights and cache: the compute buffers and the process itself. Measured on models of 135M
# to 270M parameters with 33 outputs: 60 to 250 MB, of which the vocabulary's rows are the larger
# part.
OVERHEAD_BYTES = 200 << 20
_CELL_STEP = 256


@dataclass(frozen=True, slots=True)
class CacheSize:
    """`context` tokens for one request, `cells` for all; `bytes` of memory with the weights."""

    context: int
    cells: int
    bytes: int


def size_cache(
    card: ModelCard, header: GgufHeader, *, budget: int, ctx: int | None, parallel: int
) -> CacheSize:
    """Fit a model's cache into `budget` bytes. With `ctx` the context is exactly that, or
    DoesNotFit is raised with the numbers; without, it is the model's own, shrunk to what fits.
    Cells beyond one context (for requests that run at once, and for finished ones kept) are taken
    as far as they fit."""
    per_cell = max(1, header.kv_bytes_per_token)
    fixed = card.size_bytes + OVERHEAD_BYTES + header.vocabulary_size * 4 * (parallel + 25)
    left = budget - fixed
    fit = int((left if ctx else left * DEFAULT_SHARE) // per_cell)
    trained = card.context_length or ctx or 4096
    context = ctx or min(trained, max(fit, MIN_CONTEXT))
    if left < min(context, MIN_CONTEXT) * per_cell or (ctx and fit < ctx):
        need = fixed + context * per_cell
        raise DoesNotFit(
            f"{card.id} needs {_gb(need)} with a context of {context} tokens, and {_gb(budget)} "
            "are free for models. Use a smaller --ctx, a smaller quantization, or unload another "
            "model."
        )
    cells = min(context * parallel, context + EXTRA_CELLS, max(fit, context))
    cells = max(context, cells // _CELL_STEP * _CELL_STEP)
    return CacheSize(context, cells, fixed + cells * per_cell)


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
