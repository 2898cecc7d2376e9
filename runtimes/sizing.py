"""How large a model's cache is made: from what the user asked for, and the memory there is."""

from dataclasses import dataclass, replace

from models.card import ModelCard
from models.errors import DoesNotFit
from models.fit import Need, estimate, human_bytes, kept_sequences, largest_context
from models.header import GgufHeader
from models.kv import KvType, check_kv_type, obstacle

# With no --ctx, the cache takes at most this share of the memory left beside the weights.
DEFAULT_SHARE = 0.4
# Cells beyond one context, for requests that run at once and for finished ones that are kept.
EXTRA_CELLS = 16384
# Requests whose arithmetic must repeat run in caches of their own, so many at once at most.
QUIET_PLACES = 2
# Where a GPU has too little room, a context that nobody asked for is given up down to this.
LEAST_CONTEXT = 8192
# With no --cache-ram, blocks that leave the cache may take this much, and this share of what is
# left beside the model.
TIER_MOST = 8 << 30
TIER_SHARE = 0.25
# With no --ctx, a model that guesses for another follows requests up to this length.
PARTNER_CONTEXT = 16384
_CELL_STEP = 256


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants of a model's memory. `ctx` None is the model's own context, as far as it
    fits; `cache_ram` None leaves it to us how many bytes of host memory hold what no longer fits
    the cache, 0 is none."""

    ctx: int | None = None
    parallel: int = 8
    kv_type: KvType = KvType.F16
    cache_ram: int | None = None


@dataclass(frozen=True, slots=True)
class CacheSize:
    """`context` tokens for one request, `cells` for all; `bytes` of memory with the weights. With
    `full_window` a sliding-window model keeps every cell, so that it can be forked anywhere. For
    `quiet` requests there is room in caches of their own, and `host_cache` bytes are for what no
    longer fits the cells; `bytes` includes these. `least_context` is how far the context may still
    shrink where a GPU holds it."""

    context: int
    cells: int
    bytes: int
    full_window: bool
    quiet: int
    host_cache: int
    least_context: int


@dataclass(frozen=True, slots=True)
class _Needs:
    """What caches of one model take."""

    card: ModelCard
    header: GgufHeader
    wish: Wish

    def of(self, cells: int, *, full_window: bool) -> Need:
        """The whole model."""
        return estimate(
            self.header,
            cells,
            sequences=kept_sequences(self.header, self.wish.parallel),
            kv_type=self.wish.kv_type,
            weights_bytes=self.card.size_bytes,
            full_window=full_window,
        )

    def place(self, context: int, *, full_window: bool) -> int:
        """One place for a request whose arithmetic must repeat."""
        kv_type = self.wish.kv_type
        return estimate(
            self.header,
            context,
            sequences=1,
            kv_type=kv_type,
            weights_bytes=0,
            full_window=full_window,
        ).total

    def largest(self, budget: int) -> int:
        """The longest context that fits `budget`, or 0."""
        return largest_context(
            self.header,
            budget,
            sequences=kept_sequences(self.header, self.wish.parallel),
            kv_type=self.wish.kv_type,
            weights_bytes=self.card.size_bytes,
        )


def size_cache(
    card: ModelCard, header: GgufHeader, wish: Wish, *, budget: int, on_devices: int = 0
) -> CacheSize:
    """Fit a model's cache into `budget` bytes, `on_devices` of which are a GPU's own.

    With a `ctx` the context is exactly that, or DoesNotFit is raised with the numbers; without, it
    is the model's own, shrunk to what fits. Cells beyond one context are taken as far as they fit.
    A windowed cache is kept whole where that costs no context. What is left then goes to quiet
    places and to the host's tier, which cost no context either. Raises SettingsError where the
    model does not allow the KV type."""
    check_kv_type(card.id, header, wish.kv_type)
    needs = _Needs(card, header, wish)
    least = needs.of(_CELL_STEP, full_window=True).total
    allowed = budget if wish.ctx else least + int((budget - least) * DEFAULT_SHARE)
    context = wish.ctx or needs.largest(allowed) or needs.largest(budget)
    if not context or needs.of(context, full_window=False).total > budget:
        raise _refusal(needs, context, budget)
    full = needs.of(context, full_window=True).total <= budget

    def need(cells: int) -> int:
        return needs.of(cells, full_window=full).total

    cells = min(context * wish.parallel, context + EXTRA_CELLS)
    while cells > context and need(cells) > max(allowed, need(context)):
        cells -= _CELL_STEP
    cells = max(context, cells)
    taken = need(cells)
    one = needs.place(context, full_window=full)
    quiet = min(QUIET_PLACES, max(0, budget - taken) // one)
    taken += quiet * one
    tier = _tier(wish.cache_ram, max(0, min(budget - on_devices, budget - taken)))
    floor = context if wish.ctx else min(context, LEAST_CONTEXT)
    return CacheSize(context, cells, taken + tier, full, quiet, tier, floor)


def size_partner(card: ModelCard, header: GgufHeader, wish: Wish) -> CacheSize:
    """The size of a model that only guesses for a larger one: all requests share one context."""
    trained = card.context_length or LEAST_CONTEXT
    context = min(trained, wish.ctx or PARTNER_CONTEXT)
    need = _Needs(card, header, wish).of(context, full_window=True)
    return CacheSize(context, context, need.total, True, 0, 0, context)


def shrunk(
    card: ModelCard, header: GgufHeader, wish: Wish, size: CacheSize, context: int, cells: int
) -> CacheSize:
    """The size of a model that was loaded with fewer cells than planned."""
    needs = _Needs(card, header, wish)
    full = size.full_window
    before, after = (needs.of(n, full_window=full).total for n in (size.cells, cells))
    places = [needs.place(n, full_window=full) * size.quiet for n in (size.context, context)]
    saved = max(0, before - after) + max(0, places[0] - places[1])
    return replace(size, context=context, cells=cells, bytes=size.bytes - saved)


def notices(card: ModelCard, wish: Wish, size: CacheSize) -> list[str]:
    """What a person should know of how a model is about to be loaded."""
    said: list[str] = []
    trained = card.context_length
    if not wish.ctx and size.context < trained:
        said.append(
            f"{card.id}: the context is {size.context} of the model's {trained} tokens, which is "
            "what fits the memory. Set --ctx to insist on more"
            + (", or --kv-type q8_0 to need half." if wish.kv_type is KvType.F16 else ".")
        )
    if wish.ctx and trained and wish.ctx > trained:
        said.append(
            f"{card.id} was trained for {trained} tokens; with --ctx {wish.ctx} its answers may "
            "lose the thread beyond these."
        )
    if wish.cache_ram and size.host_cache < wish.cache_ram:
        said.append(
            f"{card.id}: --cache-ram {human_bytes(wish.cache_ram)} does not fit beside the model; "
            f"it gets {human_bytes(size.host_cache)}."
        )
    return said


def _tier(asked: int | None, left: int) -> int:
    return min(TIER_MOST, int(left * TIER_SHARE)) if asked is None else min(asked, left)


def _refusal(needs: _Needs, context: int, budget: int) -> DoesNotFit:
    """The numbers, and the ways out that there are."""
    card, wish = needs.card, needs.wish
    asked = context or min(2048, card.context_length or 2048)
    need = needs.of(asked, full_window=False)
    ways: list[str] = []
    if largest := needs.largest(budget):
        ways.append(f"--ctx {min(largest, asked)}, which fits")
    if wish.kv_type is KvType.F16 and not obstacle(needs.header, KvType.Q8_0):
        ways.append("--kv-type q8_0")
    ways += ["a smaller quantization"]
    return DoesNotFit(
        f"{card.id} needs {human_bytes(need.total)} ({need}) with a context of {asked} tokens, "
        f"and {human_bytes(max(0, budget))} are free for models. Use {', '.join(ways)}, or unload "
        "another model."
    )
