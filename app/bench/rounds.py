"""Plays workloads: one server at a time, two servers in alternating rounds."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.bench.client import Endpoint, Listed, Reply
from app.bench.measure import Round
from app.bench.workloads import Turn, Workload, salted
from models.errors import ModelNotFound, RunnerError, ServerUnreachable

Note = Callable[[str], None]
"""Tells a person what is being done."""

_SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


@dataclass(frozen=True, slots=True)
class Side:
    """A server under test."""

    name: str
    endpoint: Endpoint
    model: str
    weight_bytes: int | None
    takes_system: bool = True
    """Whether its chat template knows a system message."""


@dataclass(slots=True)
class _Lane:
    """A conversation as it stands."""

    head: tuple[dict[str, str], ...]
    salt: str
    """What its first question begins with."""
    turns: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    broken: bool = False


def _lane(one: Side, salt: str) -> _Lane:
    """The salt goes first of all. Where a template has a system message of its own, leaving ours
    out would put that before the salt, and no round would be quite cold."""
    if one.takes_system:
        return _Lane(({**_SYSTEM, "content": f"{salt} {_SYSTEM['content']}"},), "")
    return _Lane((), f"{salt} ")


async def side(name: str, endpoint: Endpoint, wanted: str | None, *, like: str | None) -> Side:
    """A server and the model to ask for: the one that is named, else the one it lists as loaded,
    the only one, or the one of the same name as `like`. Raises RunnerError."""
    try:
        listed = await endpoint.models()
    except RunnerError:
        if wanted is None:
            raise
        listed = ()  # what cannot be listed may still be asked
    model = wanted or _only(endpoint, listed, like)
    same = [one for one in listed if model.casefold() in _names(one)]
    # llama-server answers to any name with the one model that it has.
    chosen = same or (list(listed) if len(listed) == 1 else [])
    return Side(name, endpoint, model, chosen[0].weight_bytes if chosen else None)


def _names(one: Listed) -> tuple[str, str]:
    return one.id.casefold(), one.id.casefold().removesuffix(":latest")


def _only(endpoint: Endpoint, listed: Sequence[Listed], like: str | None) -> str:
    for candidates in (
        [one.id for one in listed if one.id == like],
        [one.id for one in listed if one.ready],
        [one.id for one in listed],
    ):
        if len(candidates) == 1:
            return candidates[0]
    ids = ", ".join(one.id for one in listed[:5]) or "none"
    option = "--compare-model NAME" if like else "runner bench MODEL"
    raise ModelNotFound(
        f"Which model of {endpoint.base_url} is meant is not clear; it lists {ids}. "
        f"Name one: {option}."
    )


async def warm_up(one: Side) -> Side:
    """Make the server load the model, which is not part of any figure, and learn whether it takes
    a system message: some chat templates refuse one. Raises RunnerError."""
    try:
        await _greet(one, [_SYSTEM])
    except ServerUnreachable:
        raise
    except RunnerError:
        await _greet(one, [])  # if this fails, too, it is not for the system message
        return replace(one, takes_system=False)
    return one


async def _greet(one: Side, head: list[dict[str, str]]) -> None:
    messages = [*head, {"role": "user", "content": "Say hello."}]
    await one.endpoint.chat(
        {"model": one.model, "messages": messages, "max_tokens": 4, "temperature": 0}
    )


def order(sides: Sequence[Side], rounds: int) -> Iterator[tuple[int, Side]]:
    """A B, B A, A B: neither is always the one that comes after the other."""
    for number in range(rounds):
        for one in sides if number % 2 == 0 else reversed(sides):
            yield number, one


async def play_all(
    workload: Workload, sides: Sequence[Side], rounds: int, run: str, note: Note
) -> dict[str, list[Round]]:
    """All rounds of a workload, by the side's name. Never two servers at a time."""
    played: dict[str, list[Round]] = {one.name: [] for one in sides}
    for number, one in order(sides, rounds):
        whose = f", {one.name}" if len(sides) > 1 else ""
        note(f"{workload.name}: round {number + 1} of {rounds}{whose}")
        played[one.name].append(await play(workload, one, run, number))
    return played


async def play(workload: Workload, one: Side, run: str, number: int) -> Round:
    """One round. A request that fails is counted and ends its conversation."""
    replies: list[Reply] = []
    failures: list[str] = []
    lanes = [
        _lane(one, salted(workload, run, number, index)) for index in range(len(workload.lanes))
    ]

    async def ask(index: int, turn: Turn) -> None:
        lane = lanes[index]
        if lane.broken:
            return
        try:
            replies.append(await _ask(workload, one, lane, turn))
        except RunnerError as error:
            lane.broken = True
            failures.append(error.message)

    async def lead(index: int) -> None:
        for turn in workload.lanes[index]:
            await ask(index, turn)

    began = time.perf_counter()
    if workload.at_once:
        async with asyncio.TaskGroup() as group:
            for index in range(len(lanes)):
                group.create_task(lead(index))
    else:
        for step in range(max(map(len, workload.lanes))):
            for index, turns in enumerate(workload.lanes):
                if step < len(turns):
                    await ask(index, turns[step])
    return Round(tuple(replies), tuple(failures), time.perf_counter() - began)


async def _ask(workload: Workload, one: Side, lane: _Lane, turn: Turn) -> Reply:
    if turn.keep is not None:
        del lane.turns[2 * turn.keep :]
    text = turn.text if lane.turns else lane.salt + turn.text
    lane.turns.append({"role": "user", "content": text})
    body: dict[str, Any] = {
        "model": one.model,
        "messages": [*lane.head, *lane.turns],
        "max_tokens": workload.max_tokens,
        "temperature": 0,
    }
    if workload.response_format is not None:
        body["response_format"] = workload.response_format
    reply = await one.endpoint.chat(body)
    if workload.response_format is not None and not _is_json(reply):
        raise RunnerError(
            f"{one.endpoint.base_url} answered a request with a response_format with what is not "
            "JSON; it may not know that field."
        )
    # The next turn carries what was answered, as a client does it. Some servers refuse empty ones.
    lane.turns.append({"role": "assistant", "content": reply.text or "..."})
    return reply


def _is_json(reply: Reply) -> bool:
    if reply.finish_reason == "length":
        return True  # cut by us; how it would have ended is not known
    try:
        json.loads(reply.text)
    except ValueError:
        return False
    return True
