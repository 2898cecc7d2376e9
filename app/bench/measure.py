"""The figures of a round, of several rounds, and of two servers beside each other.

All times are the client's. A figure is None where the server did not tell what it needs."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.bench.client import Reply


@dataclass(frozen=True, slots=True)
class Targets:
    """What a reader still finds quick."""

    ttft_s: float = 1.0
    tpot_s: float = 0.1


@dataclass(frozen=True, slots=True)
class Round:
    """What one server answered to one round of a workload."""

    replies: tuple[Reply, ...]
    failures: tuple[str, ...]
    """One message for each request that got no whole answer."""
    wall_s: float
    """From the first request to the last answer's end."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One server, one workload. Percentiles are over requests, shares over tokens."""

    requests: int
    failed: int
    prompt_tokens: float | None
    output_tokens: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    tpot_p95_s: float | None
    tokens_per_s: float | None
    goodput: float | None
    cached_share: float | None
    wall_s: float | None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours to theirs: the median over the rounds, and the outermost of them."""

    median: float
    low: float
    high: float


MEASURED = (
    "prompt_tokens",
    "output_tokens",
    "ttft_p50_s",
    "ttft_p95_s",
    "tpot_p50_s",
    "tpot_p95_s",
    "tokens_per_s",
    "goodput",
    "cached_share",
    "wall_s",
)
COMPARED = tuple(name for name in MEASURED if name != "prompt_tokens")


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of all do not exceed: always one that was seen."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def tpot(reply: Reply) -> float | None:
    """Seconds per token after the first. One chunk alone has no time between tokens."""
    tokens, arrivals = reply.output_tokens, reply.arrivals
    if tokens is None or tokens < 2 or len(arrivals) < 2:
        return None
    return (arrivals[-1] - arrivals[0]) / (tokens - 1)


def on_time(arrivals: Sequence[float], tokens: int, targets: Targets) -> int:
    """How many tokens came in time: token i, from 0, within the TTFT target and i times the TPOT
    target after the request was sent. A reader who is ahead does not mind a pause.

    A chunk may carry several tokens. Which, is not told: they are spread evenly over the chunks,
    and a token that may have come with two of them counts with the later."""
    chunks = len(arrivals)
    if not chunks:
        return 0
    return sum(
        arrivals[-(-(index + 1) * chunks // tokens) - 1] <= targets.ttft_s + index * targets.tpot_s
        for index in range(tokens)
    )


def figures(played: Round, targets: Targets) -> Figures:
    """One round's."""
    replies = played.replies
    firsts = [reply.arrivals[0] for reply in replies if reply.arrivals]
    paces = [pace for reply in replies if (pace := tpot(reply)) is not None]
    prompt = _total(reply.prompt_tokens for reply in replies)
    output = _total(reply.output_tokens for reply in replies)
    timely = _total(
        None
        if reply.output_tokens is None
        else on_time(reply.arrivals, reply.output_tokens, targets)
        for reply in replies
    )
    return Figures(
        requests=len(replies) + len(played.failures),
        failed=len(played.failures),
        prompt_tokens=prompt,
        output_tokens=output,
        ttft_p50_s=percentile(firsts, 0.5),
        ttft_p95_s=percentile(firsts, 0.95),
        tpot_p50_s=percentile(paces, 0.5),
        tpot_p95_s=percentile(paces, 0.95),
        tokens_per_s=_share(output, played.wall_s),
        goodput=_share(timely, output),
        cached_share=_share(_cached(replies), prompt),
        wall_s=played.wall_s if replies else None,
    )


def over_rounds(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure over the rounds that have it; requests are added up."""
    medians = {name: _median(_values(rounds, name)) for name in MEASURED}
    return Figures(
        requests=sum(one.requests for one in rounds),
        failed=sum(one.failed for one in rounds),
        **medians,
    )


def ratios(ours: Sequence[Figures], theirs: Sequence[Figures]) -> dict[str, Ratio]:
    """By figure, the ratio of rounds that ran one after the other, so that a machine which slows
    down in the meantime slows both."""
    found: dict[str, Ratio] = {}
    for name in COMPARED:
        pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(ours, theirs, strict=True)]
        quotients = [a / b for a, b in pairs if a is not None and b]
        if quotients:
            median = statistics.median(quotients)
            found[name] = Ratio(median, min(quotients), max(quotients))
    return found


def _values(rounds: Sequence[Figures], name: str) -> list[float]:
    return [value for one in rounds if (value := getattr(one, name)) is not None]


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _total(counts: Iterable[int | None]) -> int | None:
    """The sum, unless one is missing: a part would pass for the whole."""
    known = list(counts)
    if not known or None in known:
        return None
    return sum(count for count in known if count is not None)


def _cached(replies: Sequence[Reply]) -> int | None:
    # vLLM leaves the field out where nothing was cached: one that tells it once tells it always.
    told = [reply.cached_tokens for reply in replies if reply.cached_tokens is not None]
    return sum(told) if told else None


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
