"""What can be asked for and how the server is doing: models, health, metrics, status."""

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from app.metrics import CONTENT_TYPE, metrics_text
from app.version import version
from models.errors import ModelNotFound
from runtimes.base import LoadState, ModelHost, ModelInfo

router = APIRouter()

SERVER_NAME = "runner"


def _host(http: Request) -> ModelHost:
    return http.app.state.host


def _entry(info: ModelInfo) -> dict[str, Any]:
    # The window of one request, which is what a client has to plan with. Before the first load it
    # is not known, and the trained length is the best there is.
    context = info.context or info.trained_context
    return {
        "id": info.id,
        "object": "model",
        "created": info.created,
        "owned_by": "local",
        "context_length": context,
        "max_model_len": context,
        "trained_context_length": info.trained_context,
        "capabilities": capabilities_of(info),
        "state": info.state.value,
        "size_bytes": info.size_bytes,
    }


def capabilities_of(info: ModelInfo) -> list[str]:
    """What a model can do, in Ollama's words. Tools are told to every model, in its template's
    words or in plain ones."""
    able = {"tools": True, "thinking": info.thinks}
    writing = ["completion", *(word for word, can in able.items() if can)] if info.writes else []
    return [*writing, *(["embedding"] if info.embeds or not info.writes else [])]


def _anthropic_entry(info: ModelInfo) -> dict[str, Any]:
    context = info.context or info.trained_context
    return {
        "type": "model",
        "id": info.id,
        "display_name": info.id.rpartition("/")[2],
        "created_at": datetime.fromtimestamp(info.created, UTC).isoformat(),
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": context,
        "capabilities": None,
    }


def _shape(http: Request) -> Callable[[ModelInfo], dict[str, Any]]:
    """Anthropic's clients ask at the same address, with a header that no other sends."""
    return _anthropic_entry if "anthropic-version" in http.headers else _entry


@router.get("/v1/models")
async def list_models(http: Request) -> dict[str, Any]:
    """Every model that can be asked for, as OpenAI or (with `anthropic-version`) Anthropic lists
    them."""
    shape = _shape(http)
    data = [shape(info) for info in _host(http).models()]
    if shape is _entry:
        return {"object": "list", "data": data}
    ids = [entry["id"] for entry in data] or [None]
    return {"data": data, "has_more": False, "first_id": ids[0], "last_id": ids[-1]}


@router.get("/v1/models/{name:path}")
async def get_model(http: Request, name: str) -> dict[str, Any]:
    """One model."""
    return _shape(http)(await asked_for(_host(http), name))


async def asked_for(host: ModelHost, name: str) -> ModelInfo:
    """The model that a client means by any name that requests may use. Raises ModelNotFound."""
    try:
        return known_as(host, name)
    except ModelNotFound:
        card = await asyncio.to_thread(host.card, name)
        return known_as(host, card.id)


def known_as(host: ModelHost, name: str) -> ModelInfo:
    """The model that a client means, which may leave out `latest` or add it. Raises
    ModelNotFound."""
    known = host.models()
    bare = name.removesuffix(":latest")
    for info in known:
        if info.id == name:
            return info
    for info in known:
        if info.id in (bare, f"{bare}:latest") or info.id.casefold() == name.casefold():
            return info
    raise ModelNotFound(f"The model {name} is not here. GET /v1/models lists what is.")


@router.get("/health")
async def health(http: Request) -> Response:
    """200 when requests are answered at once, 503 while a model is being loaded."""
    state = http.app.state
    if state.preloading() or _host(http).loading():
        return JSONResponse({"status": "loading"}, 503, {"retry-after": "1"})
    return JSONResponse({"status": "ok"})


@router.get("/metrics")
async def metrics(http: Request) -> Response:
    """Prometheus text."""
    return Response(metrics_text(_host(http).stats()), media_type=CONTENT_TYPE)


@router.get("/runner/status")
async def status(http: Request) -> dict[str, Any]:
    """What `runner ps` shows."""
    host = _host(http)
    present = (LoadState.LOADING, LoadState.READY, LoadState.FAILED)
    return {
        "server": SERVER_NAME,
        "version": version(),
        "pid": os.getpid(),
        "uptime_s": round(time.monotonic() - http.app.state.started, 3),
        "loading": host.loading(),
        "models": [
            {
                "id": info.id,
                "state": info.state.value,
                "context": info.context,
                "trained_context": info.trained_context,
                "placement": info.placement,
                "memory_bytes": info.memory_bytes,
                "memory": dict(info.memory),
                "running": info.running,
                "waiting": info.waiting,
                "expires_in_s": info.expires_in_s,
            }
            for info in host.models()
            if info.state in present
        ],
    }


@router.head("/")  # Ollama's clients look whether anybody is there
@router.get("/")
async def root() -> PlainTextResponse:
    """For whoever opens the address in a browser."""
    return PlainTextResponse("runner is running. Point an OpenAI client at /v1.\n")
