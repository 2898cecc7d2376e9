"""`POST /api/chat` and `POST /api/generate`: answers in lines, loading and unloading."""

import contextlib
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from app.api.body import Reads
from app.api.models import asked_for
from app.api.ollama.fields import (
    AnswerFields,
    GenerateFields,
    OllamaChatFields,
    chat_request,
    generate_request,
    leaves_at_once,
)
from app.api.ollama.lines import (
    LINES,
    MEDIA_TYPE,
    LoadsOnly,
    OllamaDialect,
    Shape,
    Watched,
    in_message,
    in_response,
    line,
    now,
)
from app.api.reply import Reply
from app.api.sampling import PRIORITY_HEADER
from models.chat import RawPrompt, Request
from models.errors import ModelNotFound

router = APIRouter()


@router.post("/api/chat")
async def chat(
    http: HttpRequest, body: Annotated[OllamaChatFields, Depends(Reads(OllamaChatFields))]
) -> Response:
    """Answer a conversation; without messages, load the model or let it go."""
    if not body.messages:
        return await _without_prompt(http, body, in_message)
    request = chat_request(body, http.headers.get(PRIORITY_HEADER))
    return _answer(http, body, request, in_message)


@router.post("/api/generate")
async def generate(
    http: HttpRequest, body: Annotated[GenerateFields, Depends(Reads(GenerateFields))]
) -> Response:
    """Answer a prompt; without one, load the model or let it go."""
    request = generate_request(body, http.app.state.notices, http.headers.get(PRIORITY_HEADER))
    if not body.prompt:
        return await _without_prompt(http, body, in_response)
    return _answer(http, body, request, in_response)


def _answer(http: HttpRequest, body: AnswerFields, request: Request, shape: Shape) -> Response:
    http.state.model = body.model
    state = http.app.state
    watched = Watched(state.host, state.notices, body.num_ctx)
    return _reply(http, body, request, watched, OllamaDialect(body.model, shape, watched))


async def _without_prompt(http: HttpRequest, body: AnswerFields, shape: Shape) -> Response:
    http.state.model = body.model
    host = http.app.state.host
    if not leaves_at_once(body.keep_alive):
        watched = LoadsOnly(host, http.app.state.notices)
        dialect = OllamaDialect(body.model, shape, watched, "load")
        return _reply(http, body, Request(body.model, RawPrompt("")), watched, dialect)
    known = await asked_for(host, body.model)
    with contextlib.suppress(ModelNotFound):  # it was not loaded
        await host.unload(known.id)
    head = {"model": body.model, "created_at": now()}
    end = {"done": True, "done_reason": "unload"}
    streamed = body.stream is None or body.stream
    media_type = MEDIA_TYPE if streamed else "application/json"
    return Response(line({**head, **shape({"content": ""}), **end}), media_type=media_type)


def _reply(
    http: HttpRequest,
    body: AnswerFields,
    request: Request,
    watched: Watched,
    dialect: OllamaDialect,
) -> Response:
    streamed = body.stream is None or body.stream
    pace = http.app.state.pace
    return Reply(watched, [request], dialect, pace, stream=streamed, headers=LINES)
