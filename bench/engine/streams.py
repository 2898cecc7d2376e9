"""Many answers at once, greedy and sampled, on several servers in alternating rounds.

    python bench/engine/streams.py --widths 1,8,32 ours=http://127.0.0.1:11411 other=http://...

Prints a line of JSON for each width and way of sampling: the median step (seconds a token of one
stream) and tokens per second of all streams, by server, over the time in which all of them write.
"""

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

import httpx

WAYS: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.7, "top_p": 0.95, "top_k": 40, "min_p": 0},
}


async def stream(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> list[float]:
    """When each piece of one answer came."""
    async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
        lines = reply.aiter_lines()
        return [time.monotonic() async for line in lines if line.startswith("data: {")]


def _body(model: str, n: int, tokens: int) -> dict[str, Any]:
    text = f"Number {n}: tell a long story about a river."
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": tokens, "stream": True}


async def measure(url: str, width: int, way: dict[str, float], tokens: int) -> tuple[float, float]:
    """Seconds a token, and tokens a second of all, while every stream writes."""
    limits = httpx.Limits(max_connections=width)
    async with httpx.AsyncClient(timeout=600, limits=limits) as client:
        models = (await client.get(f"{url}/v1/models")).json()
        model = str(models["data"][0]["id"])
        asked = (stream(client, url, _body(model, n, tokens) | way) for n in range(width))
        all_times = await asyncio.gather(*asked)
    start, end = max(t[1] for t in all_times), min(t[-1] for t in all_times)
    inside = sum(sum(start <= at <= end for at in times) for times in all_times)
    span = max(1e-9, end - start)
    return span * width / max(1, inside), inside / span


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", nargs="+", help="name=url")
    parser.add_argument("--widths", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    servers = dict(item.split("=", 1) for item in args.servers)
    for url in servers.values():
        asyncio.run(measure(url, 1, WAYS["greedy"], 8))
    for width in map(int, args.widths.split(",")):
        for name, way in WAYS.items():
            found: dict[str, list[tuple[float, float]]] = {server: [] for server in servers}
            for turn in range(args.rounds):
                order = list(servers) if turn % 2 == 0 else list(servers)[::-1]
                for server in order:
                    figures = asyncio.run(measure(servers[server], width, way, args.tokens))
                    found[server].append(figures)
            line: dict[str, Any] = {"width": width, "way": name}
            for server, figures in found.items():
                step = statistics.median(f[0] for f in figures)
                rate = statistics.median(f[1] for f in figures)
                line[server] = {"ms": round(1000 * step, 2), "tokens_s": round(rate, 1)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
