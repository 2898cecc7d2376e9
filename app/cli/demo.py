"""`runner demo`: the server on the starter model, with one question asked so that it is seen to
work."""

import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from app.settings import Settings
    from runtimes.pool import ModelPool

STARTER = "smollm2:135m"
QUESTION = "Say hello, and name one thing you can help with, in one sentence."


def demo(
    model: Annotated[str, typer.Argument(help="A model's name.")] = STARTER,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
) -> None:
    """Serve a model, ask it one question, and show how to point an agent at it."""
    from app.settings import create_folders, load_settings
    from models import starter
    from models.store import Store

    settings = load_settings({"port": port, "log_level": "warning"})
    create_folders(settings)
    if starter.is_starter(model):
        print("Looking for the starter model; where it is not here, it is fetched (98 MB) ...")
        starter.fetch(settings.models_dir)
    card = Store(settings.models_dir).find(model)
    from app.build import build_host
    from app.server import serve

    def ready(url: str) -> None:
        print(f"runner serves at {url}; loading {card.id} ...", flush=True)
        asking = threading.Thread(
            target=_ask_and_explain, args=(url, settings.api_key, card.id), daemon=True
        )
        asking.start()

    def build(settings: "Settings") -> "ModelPool":
        return build_host(settings, named=model)

    raise typer.Exit(serve(settings, build, preload=card.id, ready=ready))


def _ask_and_explain(url: str, key: str | None, model: str) -> None:
    from models.errors import RunnerError

    try:
        _ask(url, key, model)
    except RunnerError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return
    print(
        f"""
Point any OpenAI-compatible client or agent here:
  export OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key or "any"}     and model {model}
  curl {url}/v1/chat/completions -H 'content-type: application/json' \\
       -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hi"}}]}}'
Ctrl-C stops the server.""",
        flush=True,
    )


def _ask(url: str, key: str | None, model: str) -> None:
    """One streamed request over HTTP, shown as it comes, with what it took."""
    from app.client import LocalServer

    print(f"\n> {QUESTION}")
    body = {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 64,
        "stream_options": {"include_usage": True},
    }
    server = LocalServer(url, key)
    while not _loaded(server.status(), model):  # the load is not part of the figures
        time.sleep(0.1)
    started, first, tokens = time.perf_counter(), 0.0, 0
    for chunk in server.chat(body):
        choices: list[dict[str, Any]] = chunk.get("choices") or []
        usage: dict[str, int] = chunk.get("usage") or {}
        for choice in choices:
            if text := choice["delta"].get("content"):
                first = first or time.perf_counter()
                print(text, end="", flush=True)
        tokens = usage.get("completion_tokens", tokens)
    ended = time.perf_counter()
    rate = (tokens - 1) / (ended - first) if tokens > 1 else 0.0
    ttft_ms = (first - started) * 1e3
    print(f"\n\n{tokens} tokens: first after {ttft_ms:.0f} ms, then {rate:.1f} a second")


def _loaded(status: dict[str, Any], model: str) -> bool:
    return any(m["id"] == model and m["state"] == "ready" for m in status["models"])
