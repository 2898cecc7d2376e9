"""What memory below the live cache is worth: idle sessions, switching between many, a restart.

Each scenario runs on this server and, where a command for it is given, on another one, one after
the other, and prints one JSON line with seconds and counts.

    python bench/engine/tiers.py --ours "runner serve MODEL --port {port} --ctx 32768" \
        --other "llama-server -m MODEL --port {port} -c 65536 -np 4" --tokens 1000 --sessions 16
"""

import argparse
import asyncio
import json
import os
import random
import shlex
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

VOCABULARY = "river stone garden winter letter window market summer bridge paper silver animal"
WORDS = VOCABULARY.split()
# Caches outlive a run: no two runs ask the same.
SALT = os.urandom(4).hex()


def prose(seed: int, words: int) -> str:
    """Text of one's own for each seed, different from its first word on."""
    rng = random.Random(seed)
    return f"{SALT} {seed} " + " ".join(rng.choice(WORDS) for _ in range(words))


@dataclass
class Reply:
    """One answer as a client sees it."""

    ttft: float
    seconds: float
    prompt: int
    cached: int
    tokens: int
    text: str

    @property
    def tpot(self) -> float:
        return (self.seconds - self.ttft) / max(1, self.tokens - 1)


class Server:
    """A process that is started, asked and killed."""

    def __init__(self, name: str, command: str, log: Path, never: Sequence[str] = ()) -> None:
        self.name, self.command, self.never = name, command, never
        self.log = log.open("a")
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> float:
        """Start it; returns the seconds until it is ready."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        began = time.monotonic()
        command = shlex.split(self.command.format(port=port))
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while True:
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return time.monotonic() - began
            except httpx.HTTPError:
                pass
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} ended with {self.process.returncode}")
            time.sleep(0.1)

    def kill(self) -> None:
        """As a crash would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        time.sleep(1)

    async def ask(self, messages: list[dict[str, str]], tokens: int) -> Reply:
        body = {
            "model": await self.model(),
            "messages": messages,
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            # A model that ends its turn at once would leave nothing to measure.
            "logit_bias": dict.fromkeys(self.never, -100),
        }
        began, first, usage, text = time.monotonic(), 0.0, dict[str, Any](), ""
        async with (
            httpx.AsyncClient(timeout=900) as client,
            client.stream("POST", f"{self.url}/v1/chat/completions", json=body) as reply,
        ):
            async for line in reply.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices", ()):
                    piece = choice["delta"].get("content") or ""
                    if piece and not first:
                        first = time.monotonic()
                    text += piece
        now = time.monotonic()
        details = usage.get("prompt_tokens_details") or {}
        return Reply(
            (first or now) - began, now - began, usage.get("prompt_tokens", 0),
            details.get("cached_tokens", 0), usage.get("completion_tokens", 0), text,
        )  # fmt: skip

    async def model(self) -> str:
        async with httpx.AsyncClient() as client:
            return str((await client.get(f"{self.url}/v1/models")).json()["data"][0]["id"])


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def idle(server: Server, args: argparse.Namespace) -> dict[str, float]:
    """The step of one live stream, alone and beside sessions that rest."""
    await server.ask(user(prose(1, 20)), 4)
    alone = [await server.ask(user(prose(2 + i, args.tokens)), args.answer) for i in range(2)]
    for i in range(args.sessions):
        await server.ask(user(prose(100 + i, args.session_tokens)), 2)
    beside = [await server.ask(user(prose(50 + i, args.tokens)), args.answer) for i in range(2)]
    before, after = (min(r.tpot for r in replies) for replies in (alone, beside))
    return {"alone_tpot": before, "beside_tpot": after, "ratio": after / before}


async def switch(server: Server, args: argparse.Namespace) -> dict[str, float]:
    """Conversations one after the other, a new stream beside them, then all at once."""
    talks = [user(prose(200 + i, args.session_tokens)) for i in range(args.sessions)]
    cold: list[float] = []
    for talk in talks:
        reply = await server.ask(talk, 8)
        cold.append(reply.ttft)
        talk += [{"role": "assistant", "content": reply.text}, *user(prose(1, 48))]
    turns: list[Reply] = []
    for _ in range(args.turns):
        for talk in talks:
            reply = await server.ask(talk, 8)
            turns.append(reply)
            talk += [{"role": "assistant", "content": reply.text}, *user(prose(2, 48))]
    await asyncio.sleep(args.pause)
    fresh = await server.ask(user(prose(999, args.tokens)), 8)
    began = time.monotonic()
    together = await asyncio.gather(*(server.ask(talk, args.answer) for talk in talks))
    return {
        "cold_ttft": statistics.median(cold),
        "turn_ttft": statistics.median(r.ttft for r in turns),
        "turn_cached": sum(r.cached for r in turns) / max(1, sum(r.prompt for r in turns)),
        "new_ttft": fresh.ttft,
        "together_last_ttft": max(r.ttft for r in together),
        "together_tps": sum(r.tokens for r in together)
        / max(1e-9, max(r.seconds for r in together) - min(r.ttft for r in together)),
        "together_wall": time.monotonic() - began,
    }


async def restart(server: Server, args: argparse.Namespace) -> dict[str, float]:
    """A session comes back after the server was killed."""
    await server.ask(user(prose(1, 20)), 2)
    before = await server.ask(user(prose(300, args.session_tokens)), 8)
    await asyncio.sleep(args.settle)
    server.kill()
    server.start()
    await server.ask(user(prose(1, 20)), 2)
    after = await server.ask(user(prose(300, args.session_tokens)), 8)
    return {
        "cold_ttft": before.ttft,
        "back_ttft": after.ttft,
        "cached": after.cached / max(1, after.prompt),
        "same_text": float(after.text == before.text),
    }


SCENARIOS = {"idle": idle, "switch": switch, "restart": restart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--other", help="another server's command")
    parser.add_argument("--scenarios", default="idle,switch,restart")
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--session-tokens", type=int, default=1000)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--answer", type=int, default=48)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before the new stream")
    parser.add_argument("--settle", type=float, default=3.0)
    parser.add_argument("--never", nargs="*", default=[], help="ids of tokens not to answer with")
    parser.add_argument("--log", type=Path, default=Path(os.devnull))
    args = parser.parse_args()
    for scenario in args.scenarios.split(","):
        for name, command in (("ours", args.ours), ("other", args.other)):
            if command is None:
                continue
            server = Server(name, command, args.log, args.never)
            server.start()
            figures = asyncio.run(SCENARIOS[scenario](server, args))
            server.kill()
            rounded = {key: round(value, 4) for key, value in figures.items()}
            print(json.dumps({"scenario": scenario, "server": name, **rounded}), flush=True)


if __name__ == "__main__":
    main()
