"""What a Responses request may ask for, as the one internal request."""

import json
from dataclasses import dataclass
from typing import Any, cast

from app.api.constraint import constraint_of, schema_of
from app.api.notices import Notices
from app.api.parts import JSON, object_at
from app.api.responses.ids import new_id
from app.api.responses.items import kind_of, messages_of
from app.api.responses.sealed import Seal
from app.api.responses.store import ResponseStore
from app.api.responses.tools import Toolbox
from app.api.sampling import (
    SharedFields,
    TokenCount,
    TopCount,
    limits_of,
    priority_of,
    sampling_of,
)
from models.chat import Constraint, ConstraintKind, Conversation, Message, Request, Role
from models.errors import RequestInvalid

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
_NO_THINKING = ("none", "minimal")
_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


class ResponseFields(SharedFields):
    """What a response may be asked for, beside the shared fields."""

    input: Any = None
    instructions: str | None = None
    max_output_tokens: TokenCount | None = None
    top_logprobs: TopCount | None = None
    include: list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    truncation: str | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None

    @property
    def kept(self) -> bool:
        """Whether it can be asked for again."""
        return self.store is not False

    @property
    def wants_sealed(self) -> bool:
        """Whether reasoning comes with a copy that its client need not understand."""
        return ENCRYPTED in (self.include or [])

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or LOGPROBS in (self.include or [])


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and what its reply has to know besides. `items` are those of this request alone,
    as they are kept."""

    request: Request
    toolbox: Toolbox
    items: tuple[JSON, ...]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What items may refer to, and how what is left out is told."""

    store: ResponseStore
    seal: Seal
    notices: Notices


def asked(body: ResponseFields, priority: str | None, about: Surroundings) -> Asked:
    """The fields as the one internal request. Raises RequestInvalid."""
    _refuse_what_is_not_here(body)
    store = about.store
    toolbox = Toolbox(body.tools or [], about.notices)
    choice, tools = toolbox.choose(body.tool_choice, parallel=body.parallel_tool_calls is not False)
    own = _own_items(body, store)
    before = store.context(body.previous_response_id) if body.previous_response_id else []
    pairs = [*(("previous_response_id", item) for item in before), *own]
    messages = messages_of(pairs, toolbox, about.seal, about.notices)
    if not messages:
        raise RequestInvalid("input must hold at least one message.", "input")
    if body.instructions:
        messages = (Message(Role.SYSTEM, body.instructions), *messages)
    limits = [n for n in (body.max_output_tokens, body.max_tokens) if n is not None]
    request = Request(
        model=body.model,
        prompt=Conversation(messages, tools, _template_args(body)),
        sampling=sampling_of(body),
        limits=limits_of(min(limits, default=None), body.stop),
        constraint=_constraint(body),
        tool_choice=choice,
        logprobs=(body.top_logprobs or 0) if body.wants_logprobs else None,
        priority=priority_of(body, priority),
    )
    return Asked(request, toolbox, tuple(_kept(item) for _, item in own))


def _refuse_what_is_not_here(body: ResponseFields) -> None:
    if body.background:
        text = "background responses are not supported: leave it out, and stream the response."
        raise RequestInvalid(text, "background")
    if body.conversation is not None:
        text = "conversations are not kept here: send the items as input."
        raise RequestInvalid(text, "conversation")
    if body.prompt is not None:
        text = "stored prompts are not kept here: send instructions and input."
        raise RequestInvalid(text, "prompt")
    if (body.n or 1) > 1:
        raise RequestInvalid("n must be 1: a response is a single answer.", "n")
    try:  # much of it is sent back as it came
        json.dumps(body.model_dump(), allow_nan=False)
    except ValueError:
        raise RequestInvalid("The body holds a number that is not finite.") from None


def _own_items(body: ResponseFields, store: ResponseStore) -> list[tuple[str, JSON]]:
    """The input's items with their paths, references resolved. Raises RequestInvalid."""
    if body.input is None:
        if body.previous_response_id is None:
            raise RequestInvalid("input is required.", "input")
        return []
    if isinstance(body.input, str):
        return [("input", {"type": "message", "role": "user", "content": body.input})]
    if not isinstance(body.input, list):
        raise RequestInvalid("input must be a string or a list of items.", "input")
    found: list[tuple[str, JSON]] = []
    for index, value in enumerate(cast(list[Any], body.input)):
        path = f"input.{index}"
        item = object_at(value, path)
        if kind_of(item, path) == "item_reference":
            item = _referred(item, path, store)
        found.append((path, item))
    return found


def _referred(item: JSON, path: str, store: ResponseStore) -> JSON:
    id = item.get("id")
    found = store.item(id) if isinstance(id, str) else None
    if found is None:
        raise RequestInvalid(
            f"{path} refers to an item that is not in memory. Send the item itself; with "
            '"store": false clients do so.',
            f"{path}.id",
        )
    return found


def _kept(item: JSON) -> JSON:
    """An input item with all that a listing of items has."""
    kind = kind_of(item, "input")
    content: Any = item.get("content")
    if kind == "message" and isinstance(content, str):
        part: JSON = {"type": "input_text", "text": content}
        if item.get("role") == "assistant":
            part = {"type": "output_text", "text": content, "annotations": [], "logprobs": []}
        content = [part]
    given = item.get("id")
    id = given if isinstance(given, str) and given else new_id(_PREFIXES.get(kind, "item"))
    kept = {**item, "type": kind, "id": id, "status": item.get("status") or "completed"}
    return kept | {"content": content} if kind == "message" else kept


def _template_args(body: ResponseFields) -> JSON:
    """`reasoning.effort`, as chat templates ask for it."""
    effort = (body.reasoning or {}).get("effort")
    if effort is None:
        return {}
    if not isinstance(effort, str) or not effort.isalnum() or len(effort) > 20:
        path = "reasoning.effort"
        raise RequestInvalid(f"{path} must be one word, as low, medium or high.", path)
    args: JSON = {"reasoning_effort": effort}
    return args | {"enable_thinking": False} if effort in _NO_THINKING else args


def _constraint(body: ResponseFields) -> Constraint | None:
    """The shape from `text.format`, or from a field of another dialect. Raises RequestInvalid."""
    shape, other = _format((body.text or {}).get("format")), constraint_of(body)
    if shape is not None and other is not None:
        raise RequestInvalid("Send text.format or another shape, not both.", "text.format")
    return shape or other


def _format(value: Any) -> Constraint | None:
    path = "text.format"
    if value is None:
        return None
    fields = object_at(value, path)
    match fields.get("type"):
        case "text":
            return None
        case "json_object":
            return Constraint(ConstraintKind.JSON_OBJECT)
        case "json_schema":
            holder: Any = fields.get("json_schema")  # as chat completions write it
            if isinstance(holder, dict):
                inner = cast(JSON, holder)
                return schema_of(inner.get("schema"), f"{path}.json_schema.schema")
            return schema_of(fields.get("schema"), f"{path}.schema")
        case _:
            text = f"{path}.type must be text, json_object or json_schema."
            raise RequestInvalid(text, f"{path}.type")
