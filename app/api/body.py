"""Reading a JSON body into a model of fields, with every refusal naming the field."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Generic, TypeVar, cast

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from app.api.errors import invalid_body
from models.errors import RequestInvalid

MAX_DEPTH = 100
Fields = TypeVar("Fields", bound="Body")


def _whole(value: Any) -> Any:
    """Some clients only have floating numbers: 5.0 is 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


class Body(BaseModel):
    """A request body: known fields are strict, unknown ones are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


async def read_body(request: Request, kind: type[Fields]) -> Fields:
    """The request's body as `kind`. Raises RequestInvalid, or HTTPException 415."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # A page in a browser can post forms and plain text anywhere without asking; JSON it cannot.
    if media and media != "application/json" and not media.endswith("+json"):
        raise HTTPException(415, f"Send the body as application/json, not {media[:80]}.")
    value = parse_json(await request.body())
    if not isinstance(value, dict):
        raise RequestInvalid("The body must be a JSON object.")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise invalid_body(error) from None


class Reads(Generic[Fields]):
    """A route's body as a dependency. The description of the API asks it for its fields, so that
    what is described is what is read."""

    def __init__(self, kind: type[Fields]) -> None:
        self.kind = kind

    async def __call__(self, http: Request) -> Fields:
        """See `read_body`."""
        return await read_body(http, self.kind)


def parse_json(raw: bytes) -> Any:
    """JSON text that is also valid Unicode throughout. Raises RequestInvalid."""
    try:
        value = json.loads(raw.decode("utf-8"))
        if b"\\u" in raw:  # escapes can smuggle in half a surrogate pair, which no tokenizer takes
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise RequestInvalid(
            "The body is not valid UTF-8, or holds half a surrogate pair."
        ) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestInvalid(f"The body is not valid JSON: {reason}.") from None
    if not _shallow(value):
        raise RequestInvalid(f"The body is nested more than {MAX_DEPTH} levels deep.")
    return value


def _shallow(value: Any) -> bool:
    """Whether it can be walked by recursion later on, whoever does it."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return True
    return False


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list) else ()
