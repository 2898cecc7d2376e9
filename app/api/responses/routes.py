"""`/v1/responses`: make a response, and ask for one that is still in memory."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response

from app.api.body import Reads
from app.api.errors import Fault, respond
from app.api.parts import JSON
from app.api.reply import Reply
from app.api.responses.dialect import ResponsesDialect
from app.api.responses.fields import Asked, ResponseFields, Surroundings, asked
from app.api.responses.sealed import Seal
from app.api.responses.store import ResponseStore, Stored
from app.api.sampling import PRIORITY_HEADER
from models.errors import RequestInvalid

router = APIRouter()

MOST_ITEMS = 100


class Memory:
    """What the routes remember between requests."""

    def __init__(self, store: ResponseStore | None = None, seal: Seal | None = None) -> None:
        self.store = store or ResponseStore()
        self.seal = seal or Seal()


def _memory(http: HttpRequest) -> Memory:
    return http.app.state.responses


@router.post("/v1/responses")
async def create_response(
    http: HttpRequest, body: Annotated[ResponseFields, Depends(Reads(ResponseFields))]
) -> Response:
    """Answer a conversation, given as items."""
    http.state.model = body.model
    state, memory = http.app.state, _memory(http)
    question = _asked(http, body)

    def keep(response: JSON) -> None:
        if body.kept:
            memory.store.put(Stored(response, question.items, body.previous_response_id))

    dialect = ResponsesDialect(body, question, keep, memory.seal if body.wants_sealed else None)
    stream = bool(body.stream)
    return Reply(state.host, [question.request], dialect, state.pace, stream=stream)


@router.post("/v1/responses/input_tokens")
async def count_input_tokens(
    http: HttpRequest, body: Annotated[ResponseFields, Depends(Reads(ResponseFields))]
) -> JSON:
    """How many tokens the prompt would have."""
    http.state.model = body.model
    tokens = await http.app.state.host.tokens(_asked(http, body).request)
    return {"object": "response.input_tokens", "input_tokens": len(tokens)}


def _asked(http: HttpRequest, body: ResponseFields) -> Asked:
    memory = _memory(http)
    about = Surroundings(memory.store, memory.seal, http.app.state.notices)
    return asked(body, http.headers.get(PRIORITY_HEADER), about)


@router.get("/v1/responses/{id}")
async def get_response(http: HttpRequest, id: str) -> Response:
    """A response as it was sent."""
    if http.query_params.get("stream", "false").lower() not in ("false", "0"):
        raise RequestInvalid("A response that is complete cannot be streamed.", "stream")
    stored = _memory(http).store.get(id)
    return _missing(http, id) if stored is None else JSONResponse(stored.response)


@router.delete("/v1/responses/{id}")
async def delete_response(http: HttpRequest, id: str) -> Response:
    """Forget a response."""
    if not _memory(http).store.forget(id):
        return _missing(http, id)
    return JSONResponse({"id": id, "object": "response", "deleted": True})


@router.get("/v1/responses/{id}/input_items")
async def list_input_items(http: HttpRequest, id: str) -> Response:
    """The items a response was made from, the latest first."""
    store = _memory(http).store
    stored = store.get(id)
    if stored is None:
        return _missing(http, id)
    before = store.context(stored.previous) if stored.previous else []
    return JSONResponse(_page([*before, *stored.items], http.query_params))


def _page(items: list[JSON], query: Any) -> JSON:
    order, limit = query.get("order", "desc"), query.get("limit", "20")
    if order not in ("asc", "desc"):
        raise RequestInvalid("order must be asc or desc.", "order")
    if not (
        limit.isascii() and limit.isdigit() and len(limit) < 4 and 0 < int(limit) <= MOST_ITEMS
    ):
        raise RequestInvalid(f"limit must be between 1 and {MOST_ITEMS}.", "limit")
    listed = items if order == "asc" else items[::-1]
    if (after := query.get("after")) is not None:
        at = next((i for i, item in enumerate(listed) if item["id"] == after), None)
        if at is None:
            raise RequestInvalid("after must be the id of an item of this response.", "after")
        listed = listed[at + 1 :]
    page = listed[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(listed) > len(page),
    }


def _missing(http: HttpRequest, id: str) -> Response:
    fault = Fault(404, f"Response with id '{id[:100]}' not found.")
    return respond(fault, http.url.path)
