"""`runner bench`: how fast a server answers, alone or beside another."""

import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from app.bench.workloads import Sizes, WorkloadName

if TYPE_CHECKING:
    from app.bench.measure import Targets
    from app.bench.report import Bench, Result
    from app.bench.rounds import Side


def _finite(value: float) -> float:
    import math

    if not math.isfinite(value):
        raise typer.BadParameter("it must be a number of seconds")
    return value


def bench(
    model: Annotated[str | None, typer.Argument(help="A model's name.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Measure this server.")] = None,
    compare: Annotated[str | None, typer.Option(help="And this one, in turns.")] = None,
    compare_model: Annotated[str | None, typer.Option(help="The model's name there.")] = None,
    workload: Annotated[
        list[WorkloadName] | None, typer.Option(help="May be repeated; all without it.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Rounds of each workload.")] = 3,
    streams: Annotated[int, typer.Option(min=1, max=1024, help="Requests at once.")] = 8,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Of a long prompt, about.")] = 1000,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 64,
    ttft_target: Annotated[
        float,
        typer.Option(min=0, callback=_finite, help="Goodput: seconds to the first token."),
    ] = 1.0,
    tpot_target: Annotated[
        float,
        typer.Option(min=0, callback=_finite, help="Goodput: seconds for each token after it."),
    ] = 0.1,
    api_key: Annotated[str | None, typer.Option(help="Key of the server.")] = None,
    compare_api_key: Annotated[str | None, typer.Option(help="Key of the other.")] = None,
    salt: Annotated[
        str | None, typer.Option(help="For the very prompts of another run; else a new one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a running server, one at --base-url, or one started for this."""
    import asyncio
    import secrets

    from app.bench.measure import Targets

    plan = _Plan(
        workloads=tuple(dict.fromkeys(workload or WorkloadName)),
        rounds=rounds,
        sizes=Sizes(streams, prompt_tokens, max_tokens),
        targets=Targets(ttft_target, tpot_target),
        salt=salt or secrets.token_hex(4),
    )
    with _server(model, base_url, api_key) as ours:
        theirs = _Address(compare, compare_model, compare_api_key) if compare else None
        done = asyncio.run(_measure(plan, ours, theirs))
    failed = _show(done, as_json=as_json)
    raise typer.Exit(1 if failed else 0)


@dataclass(frozen=True, slots=True)
class _Plan:
    workloads: tuple[WorkloadName, ...]
    rounds: int
    sizes: Sizes
    targets: "Targets"
    salt: str


@dataclass(frozen=True, slots=True)
class _Address:
    base_url: str
    model: str | None
    api_key: str | None


@contextmanager
def _server(model: str | None, base_url: str | None, api_key: str | None) -> Generator[_Address]:
    """The named server, else ours where one runs on the port of the settings, else a new one."""
    from app.address import local_url
    from app.client import LocalServer
    from app.settings import load_settings

    settings = load_settings({"api_key": api_key})
    url = base_url or local_url(settings.host, settings.port)
    if base_url or LocalServer.identify(url, settings.api_key):
        yield _Address(url, model, settings.api_key)
        return
    if model is None:
        from models.errors import ServerUnreachable

        raise ServerUnreachable(
            f"No server runs at {url}, and no model is named to start one with. Name a model, or "
            "a server with --base-url."
        )
    from app.local import local_server

    _note(f"starting a server for {model}")
    with local_server(settings, model) as (url, name):
        yield _Address(url, name, settings.api_key)


async def _measure(plan: _Plan, ours: _Address, theirs: _Address | None) -> "Bench":
    import asyncio

    from app.bench.report import OURS, THEIRS, Bench, Result
    from app.bench.roofline import measure_host_memory
    from app.bench.rounds import play_all
    from app.bench.workloads import build

    async with _side(OURS, ours, None) as first, _other(THEIRS, theirs, first) as others:
        sides = (first, *others)
        if not all(side.takes_system for side in sides):  # both are asked the very same
            sides = tuple(replace(side, takes_system=False) for side in sides)
        memory = None
        if any(side.endpoint.is_local and side.weight_bytes for side in sides):
            _note("measuring the bandwidth of host memory")
            memory = await asyncio.to_thread(measure_host_memory)
        results: list[Result] = []
        for name in plan.workloads:
            workload = build(name, plan.sizes)
            played = await play_all(workload, sides, plan.rounds, plan.salt, _note)
            results.append(Result(workload, played))
            _tell_failures(results[-1], sides)
        return Bench(
            sides, tuple(results), plan.sizes, plan.rounds, plan.salt, plan.targets, memory
        )


@asynccontextmanager
async def _side(name: str, address: _Address, like: str | None) -> AsyncGenerator["Side"]:
    """A server that answers and has its model loaded."""
    from app.bench.client import Endpoint
    from app.bench.rounds import side, warm_up

    async with Endpoint(address.base_url, address.api_key) as endpoint:
        one = await side(name, endpoint, address.model, like=like)
        _note(f"loading {one.model} at {endpoint.base_url} (a silent server gets 10 minutes)")
        yield await warm_up(one)


@asynccontextmanager
async def _other(
    name: str, address: _Address | None, first: "Side"
) -> AsyncGenerator[tuple["Side", ...]]:
    if address is None:
        yield ()
        return
    async with _side(name, address, first.model) as one:
        yield (one,)


def _tell_failures(result: "Result", sides: "tuple[Side, ...]") -> None:
    from app.bench.report import failures

    for side in sides:
        for message in failures(result, side):
            _note(f"{result.workload.name}, {side.name}: a request failed: {message}")


def _show(done: "Bench", *, as_json: bool) -> bool:
    """Print; True where a request failed."""
    from app.bench.report import document, failures, print_table

    if as_json:
        import json

        print(json.dumps(document(done), indent=2, allow_nan=False))
    else:
        print_table(done)
    return any(failures(result, side) for result in done.results for side in done.sides)


def _note(text: str) -> None:
    """Progress, which is no part of the answer."""
    print(f"bench: {' '.join(text.split())}", file=sys.stderr, flush=True)
