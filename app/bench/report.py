"""What was measured, as a table for people and as one JSON document for programs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.bench import roofline
from app.bench.measure import Figures, Ratio, Round, Targets, figures, over_rounds, ratios
from app.bench.roofline import HostMemory
from app.bench.rounds import Side
from app.bench.workloads import Sizes, Workload
from app.version import version

OURS, THEIRS = "ours", "theirs"
_TABLE_COLUMNS = 144


@dataclass(frozen=True, slots=True)
class Result:
    """All rounds of one workload, by the side's name."""

    workload: Workload
    rounds: dict[str, list[Round]]


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that was measured, and with what."""

    sides: tuple[Side, ...]
    results: tuple[Result, ...]
    sizes: Sizes
    rounds: int
    salt: str
    targets: Targets
    memory: HostMemory | None
    """None where no server runs on this machine."""

    def of(self, result: Result, side: Side) -> list[Figures]:
        """By round."""
        return [figures(played, self.targets) for played in result.rounds[side.name]]

    def ratios(self, result: Result) -> dict[str, Ratio]:
        """Empty where only one server was measured."""
        if len(self.sides) < 2:
            return {}
        ours, theirs = (self.of(result, side) for side in self.sides)
        return ratios(ours, theirs)

    def utilisation(self, one: Figures, side: Side) -> float | None:
        """Of host memory, by a server on this machine."""
        if self.memory is None or not side.endpoint.is_local:
            return None
        return roofline.utilisation(side.weight_bytes, one.tpot_p50_s, self.memory)


@dataclass(frozen=True, slots=True)
class _Column:
    heading: str
    name: str
    show: Callable[[float], str]


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _rate(value: float) -> str:
    return f"{value:.1f}"


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _whole(value: float) -> str:
    return f"{value:.0f}"


_COLUMNS = (
    _Column("requests", "requests", _whole),
    _Column("failed", "failed", _whole),
    _Column("tokens out", "output_tokens", _whole),
    _Column("TTFT p50 s", "ttft_p50_s", _seconds),
    _Column("TTFT p95 s", "ttft_p95_s", _seconds),
    _Column("TPOT p50 s", "tpot_p50_s", _seconds),
    _Column("tokens/s", "tokens_per_s", _rate),
    _Column("goodput", "goodput", _percent),
    _Column("cached", "cached_share", _percent),
)


def print_table(bench: Bench, console: Console | None = None) -> None:
    """One row a workload; with two servers one for each, and their ratio."""
    console = console or Console(soft_wrap=False)
    if not console.is_terminal:
        console.width = max(console.width, _TABLE_COLUMNS)  # a file has no edge
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    compared = len(bench.sides) > 1
    for heading in ("workload", *(["server"] if compared else [])):
        table.add_column(heading, no_wrap=True)
    for heading in (*(column.heading for column in _COLUMNS), "host memory"):
        table.add_column(heading, justify="right")
    for result in bench.results:
        for index, side in enumerate(bench.sides):
            one = over_rounds(bench.of(result, side))
            used = bench.utilisation(one, side)
            label = result.workload.name.value if index == 0 else ""
            names = [label, *([side.name] if compared else [])]
            table.add_row(*names, *_cells(one), "-" if used is None else _percent(used))
        if compared:
            found = bench.ratios(result)
            cells = [_ratio(found.get(column.name)) for column in _COLUMNS]
            table.add_row("", "ratio", *cells, "", style="bold", end_section=True)
    for line in _about(bench):
        console.print(line, markup=False, highlight=False)
    console.print(table)
    for line in _notes(bench):
        console.print(line, markup=False, highlight=False)


def _cells(one: Figures) -> Iterator[str]:
    for column in _COLUMNS:
        value: float | None = getattr(one, column.name)
        yield "-" if value is None else column.show(value)


def _ratio(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.2f}"


def _about(bench: Bench) -> Iterator[str]:
    for side in bench.sides:
        yield f"{side.name}: {side.model} at {side.endpoint.base_url}"


def _notes(bench: Bench) -> Iterator[str]:
    targets = bench.targets
    per = "median over rounds" if bench.rounds > 1 else "one round"
    yield (
        f"Each figure: {per} ({bench.rounds}). Goodput: tokens that came within "
        f"{targets.ttft_s:g} s, plus {targets.tpot_s:g} s for each token before them."
    )
    if len(bench.sides) > 1:
        yield "Ratio: ours to theirs, median over pairs of rounds. --json has the spread."
    if bench.memory is not None:
        yield from _memory_notes(bench, bench.memory)


def _memory_notes(bench: Bench, memory: HostMemory) -> Iterator[str]:
    yield (
        f"Host memory bandwidth, measured: {memory.best / 1e9:.1f} GB/s (read "
        f"{memory.read / 1e9:.1f}, copy {memory.copy / 1e9:.1f}; numpy, threads: "
        f"{memory.threads}, buffer: {memory.buffer_bytes / 1e6:.0f} MB)."
    )
    for side in bench.sides:
        if side.weight_bytes and side.endpoint.is_local:
            ceiling = roofline.roofline(side.weight_bytes, memory)
            yield (
                f"  {side.name}: {side.weight_bytes / 1e6:.0f} MB of weights at that bandwidth "
                f"are {ceiling:.1f} tokens/s a stream. Says nothing of a model on a GPU."
            )
    if any(
        (bench.utilisation(over_rounds(bench.of(result, side)), side) or 0) > 1
        for result in bench.results
        for side in bench.sides
    ):
        yield (
            "  Above 100%: the weights stayed in the processor's caches, were not all read (a "
            "mixture of experts), or a step gave several tokens."
        )


def document(bench: Bench) -> dict[str, Any]:
    """Everything, with each round. Null where a server did not tell."""
    memory = bench.memory
    return {
        "version": version(),
        "servers": {side.name: _server(side, memory) for side in bench.sides},
        "rounds": bench.rounds,
        "salt": bench.salt,
        "sizes": asdict(bench.sizes),
        "targets": asdict(bench.targets),
        "host_memory": None
        if memory is None
        else {
            "read_bytes_per_s": memory.read,
            "copy_bytes_per_s": memory.copy,
            "threads": memory.threads,
            "buffer_bytes": memory.buffer_bytes,
        },
        "workloads": [_workload(bench, result) for result in bench.results],
    }


def _server(side: Side, memory: HostMemory | None) -> dict[str, Any]:
    ceiling = None
    if memory is not None and side.weight_bytes and side.endpoint.is_local:
        ceiling = roofline.roofline(side.weight_bytes, memory)
    return {
        "base_url": side.endpoint.base_url,
        "model": side.model,
        "weight_bytes": side.weight_bytes,
        "host_memory_roofline_tokens_per_s": ceiling,
    }


def _workload(bench: Bench, result: Result) -> dict[str, Any]:
    return {
        "name": result.workload.name.value,
        "about": result.workload.about,
        "requests_per_round": result.workload.requests,
        "servers": {side.name: _figures(bench, result, side) for side in bench.sides},
        "ratios": {name: asdict(ratio) for name, ratio in bench.ratios(result).items()},
    }


def _figures(bench: Bench, result: Result, side: Side) -> dict[str, Any]:
    rounds = bench.of(result, side)
    median = over_rounds(rounds)
    return {
        "median": {
            **asdict(median),
            "host_memory_utilisation": bench.utilisation(median, side),
        },
        "rounds": [asdict(one) for one in rounds],
        "failures": failures(result, side),
    }


def failures(result: Result, side: Side) -> Sequence[str]:
    """Each message once."""
    every = [message for played in result.rounds[side.name] for message in played.failures]
    return list(dict.fromkeys(every))
