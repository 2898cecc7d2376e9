"""Texts as vectors, in Ollama's words: `/api/embed`, and the older `/api/embeddings`."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import Response
from pydantic import Field

from app.api.body import Body, Reads
from app.api.embeddings import MAX_TEXTS, Dimensions, VectorsReply, normalized, shortened
from app.api.texts import texts_of
from runtimes.base import ModelHost

router = APIRouter()


class EmbedFields(Body):
    """`POST /api/embed`. What is too long is cut, unless `truncate` is false."""

    model: str = Field(min_length=1)
    input: Any = None
    truncate: bool | None = None
    dimensions: Dimensions | None = None


class OlderEmbedFields(Body):
    """`POST /api/embeddings`."""

    model: str = Field(min_length=1)
    prompt: str | None = None


@router.post("/api/embed")
async def embed(
    http: HttpRequest, body: Annotated[EmbedFields, Depends(Reads(EmbedFields))]
) -> Response:
    """Turn texts into vectors of length 1; without any, load the model."""
    http.state.model = body.model
    texts = texts_of(body.input, "input", MAX_TEXTS) if body.input not in (None, "", []) else []
    host: ModelHost = http.app.state.host

    async def answer() -> dict[str, Any]:
        started = time.monotonic_ns()
        await _load(host, body.model)
        loaded = time.monotonic_ns()
        made = await host.embed(body.model, texts, truncate=body.truncate is not False)
        vectors = normalized(shortened(made.vectors, body.dimensions))
        return {
            "model": body.model,
            "embeddings": vectors.tolist(),
            "total_duration": time.monotonic_ns() - started,
            "load_duration": loaded - started,
            "prompt_eval_count": made.tokens,
        }

    return VectorsReply(answer)


@router.post("/api/embeddings")
async def embed_one(
    http: HttpRequest, body: Annotated[OlderEmbedFields, Depends(Reads(OlderEmbedFields))]
) -> Response:
    """One text as a vector, which here keeps the length that the model gave it."""
    http.state.model = body.model
    host: ModelHost = http.app.state.host

    async def answer() -> dict[str, Any]:
        if not body.prompt:
            await _load(host, body.model)
            return {"embedding": []}
        made = await host.embed(body.model, [body.prompt], truncate=True)
        return {"embedding": made.vectors[0].tolist()}

    return VectorsReply(answer)


async def _load(host: ModelHost, model: str) -> None:
    async for _ in host.load(model):
        pass
