"""Models fetched and removed by clients: `/api/pull`, `/api/delete`, and what is not offered."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from app.api.body import Reads
from app.api.errors import fault_of
from app.api.ollama.lines import MEDIA_TYPE, line
from app.api.ollama.shelf import Named
from app.library import Library, News
from models.download import Progress
from models.errors import ModelNotFound
from models.hub import PullPlan
from models.names import ModelName

logger = logging.getLogger("runner.http")
router = APIRouter()

_SUCCESS = {"status": "success"}
_NOT_OFFERED = {
    "/api/copy": "Models have the name of where they came from, and no other.",
    "/api/create": "Models are not made here: pull one, or put a GGUF file into the folder.",
    "/api/push": "Models are not uploaded from here.",
}


class PullFields(Named):
    """`POST /api/pull`."""

    stream: bool | None = None


@router.post("/api/pull")
async def pull(
    http: HttpRequest, body: Annotated[PullFields, Depends(Reads(PullFields))]
) -> Response:
    """Fetch a model, with progress. It stops when the client goes away, and can be gone on with."""
    library: Library = http.app.state.library
    name = library.named(body.meant)
    silence_s = http.app.state.pace.keepalive_s
    if body.stream is None or body.stream:
        lines = _lines(library, name, silence_s)
        return StreamingResponse(lines, media_type=MEDIA_TYPE)
    async with contextlib.aclosing(library.pull(name, silence_s)) as news:
        async for _ in news:
            if await http.is_disconnected():
                break
    return JSONResponse(_SUCCESS)


async def _lines(
    library: Library, name: ModelName, silence_s: float
) -> AsyncGenerator[bytes, None]:
    status: dict[str, Any] = {"status": "pulling manifest"}
    digests: dict[str, str] = {}
    yield line(status)
    try:
        async with contextlib.aclosing(library.pull(name, silence_s)) as news:
            async for item in news:
                status = _status(item, digests) or status
                yield line(status)
    except Exception as error:  # the status is out: what went wrong becomes a line
        fault = fault_of(error)
        if fault.code == "internal_error":
            logger.exception("a pull ended by an unexpected error")
        else:
            logger.warning("a pull ended: %s", fault.message)
        yield line({"error": fault.message})
        return
    yield line(_SUCCESS)


def _status(item: News, digests: dict[str, str]) -> dict[str, Any] | None:
    """A line of progress; clients draw a bar for each digest."""
    match item:
        case PullPlan(files=files):
            digests |= {file.path: f"sha256:{file.key}" for file in files}
            return None
        case Progress(file=file, done=done, total=total):
            digest = digests.get(file, file)
            return {
                "status": f"pulling {file}",
                "digest": digest,
                "total": total,
                "completed": done,
            }
        case None:
            return None


@router.delete("/api/delete")
async def delete(http: HttpRequest, body: Annotated[Named, Depends(Reads(Named))]) -> Response:
    """Remove a model's files, once nobody uses it any more."""
    name = body.meant
    host = http.app.state.host
    card = await asyncio.to_thread(host.card, name)
    with contextlib.suppress(ModelNotFound):  # it was not loaded
        await host.unload(card.id)
    await http.app.state.library.remove(card)
    return Response()


@router.post("/api/copy")
@router.post("/api/create")
@router.post("/api/push")
async def not_offered(http: HttpRequest) -> None:
    """What Ollama offers and we do not, with the reason."""
    raise HTTPException(501, _NOT_OFFERED[http.url.path])
