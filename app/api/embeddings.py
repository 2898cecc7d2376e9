"""`POST /v1/embeddings`: texts as vectors of length 1, in OpenAI's dialect."""

import base64
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray
from pydantic import Field
from starlette.types import Receive, Scope, Send

from app.api.body import Body, Reads, Whole
from app.api.reply import while_connected
from app.api.texts import texts_of
from models.errors import RequestInvalid
from runtimes.base import ModelHost

router = APIRouter()

MAX_TEXTS = 2048  # the dialect's own documented limit
Dimensions = Annotated[Whole, Field(ge=1)]
Vectors = NDArray[np.float32]


class EmbeddingFields(Body):
    """What may be asked for."""

    model: str = Field(min_length=1)
    input: Any
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None


class VectorsReply(Response):
    """Makes its answer when it is sent, and gives that up when the client goes away."""

    def __init__(self, answer: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        super().__init__()
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            await JSONResponse(await self._answer())(scope, receive, send)

        await while_connected(receive, work())


@router.post("/v1/embeddings")
async def create_embeddings(
    http: HttpRequest, body: Annotated[EmbeddingFields, Depends(Reads(EmbeddingFields))]
) -> Response:
    """Turn one or more texts into vectors."""
    http.state.model = body.model
    texts = texts_of(body.input, "input", MAX_TEXTS)
    for index, text in enumerate(texts):
        if not text:
            path = "input" if isinstance(body.input, str) else f"input.{index}"
            raise RequestInvalid(f"{path} must not be empty.", path)
    host: ModelHost = http.app.state.host

    async def answer() -> dict[str, Any]:
        made = await host.embed(body.model, texts, truncate=False)
        vectors = normalized(shortened(made.vectors, body.dimensions))
        write = _base64 if body.encoding_format == "base64" else Vectors.tolist
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": write(vector)}
                for index, vector in enumerate(vectors)
            ],
            "model": body.model,
            "usage": {"prompt_tokens": made.tokens, "total_tokens": made.tokens},
        }

    return VectorsReply(answer)


def shortened(vectors: Vectors, dimensions: int | None) -> Vectors:
    """The first numbers of each vector, which are the most telling ones where a model was trained
    for that (Matryoshka representations). Raises RequestInvalid where there are not so many."""
    size = vectors.shape[1]
    if dimensions is not None and dimensions > size:
        text = f"dimensions may be at most {size}, which is what this model gives."
        raise RequestInvalid(text, "dimensions")
    return vectors[:, :dimensions]


def normalized(vectors: Vectors) -> Vectors:
    """The same directions, of length 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.float32(1e-12))


def _base64(vector: Vectors) -> str:
    """Little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
