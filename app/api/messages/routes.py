"""`POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's fields as one request."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import Response
from pydantic import Field

from app.api.body import Body, Reads, Whole
from app.api.constraint import schema_of
from app.api.messages.events import MessagesDialect
from app.api.messages.turns import MessagesTool, MessagesTurn, conversation_of, tools_of
from app.api.notices import Notices
from app.api.reply import Reply
from app.api.sampling import PRIORITY_HEADER, limits_of, priority_of
from app.api.toolchoice import checked
from models.chat import Constraint, Request, Sampling, ToolChoice, ToolMode
from models.errors import RequestInvalid

router = APIRouter()


class CountFields(Body):
    """What a prompt is made of."""

    model: str = Field(min_length=1)
    messages: list[MessagesTurn]
    system: Any = None
    tools: list[MessagesTool] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None


class MessagesFields(CountFields):
    """What an answer may be like, beside that."""

    max_tokens: Annotated[Whole, Field(ge=1)] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[Whole, Field(ge=0)] | None = None
    service_tier: Any = None
    priority: Literal["interactive", "batch"] | None = None


@router.post("/v1/messages")
async def create_message(
    http: HttpRequest, body: Annotated[MessagesFields, Depends(Reads(MessagesFields))]
) -> Response:
    """Answer a conversation."""
    http.state.model = body.model
    state = http.app.state
    request = request_of(body, http.headers.get(PRIORITY_HEADER), state.notices)
    dialect = MessagesDialect(body.model)
    return Reply(state.host, [request], dialect, state.pace, stream=bool(body.stream))


@router.post("/v1/messages/count_tokens")
async def count_tokens(
    http: HttpRequest, body: Annotated[CountFields, Depends(Reads(CountFields))]
) -> dict[str, int]:
    """How many tokens the prompt would have."""
    http.state.model = body.model
    tokens = await http.app.state.host.tokens(_asked(body, http.app.state.notices))
    return {"input_tokens": len(tokens)}


def _asked(body: CountFields, notices: Notices) -> Request:
    choice = _choice(body.tool_choice)
    tools = [] if choice.mode is ToolMode.NONE else tools_of(body.tools or [], notices)
    prompt = conversation_of(body.system, body.messages, tools, _template_args(body))
    return Request(body.model, prompt, tool_choice=checked(choice, {tool.name for tool in tools}))


def request_of(body: MessagesFields, priority: str | None, notices: Notices) -> Request:
    """The fields as the one internal request. Raises RequestInvalid."""
    asked = _asked(body, notices)
    given: dict[str, Any] = {
        "temperature": body.temperature,
        "top_k": None if body.top_k is None else min(body.top_k, 2**31 - 1),
        "top_p": body.top_p or None,
    }
    return Request(
        model=asked.model,
        prompt=asked.prompt,
        sampling=Sampling(**{key: value for key, value in given.items() if value is not None}),
        limits=limits_of(body.max_tokens, [s for s in body.stop_sequences or [] if s]),
        constraint=_constraint(body),
        tool_choice=asked.tool_choice,
        priority=priority_of(body, priority),
    )


_MODES = {
    "auto": ToolMode.AUTO,
    "any": ToolMode.REQUIRED,
    "tool": ToolMode.REQUIRED,
    "none": ToolMode.NONE,
}


def _choice(value: Mapping[str, Any] | None) -> ToolChoice:
    if value is None:
        return ToolChoice()
    mode = _MODES.get(str(value.get("type")))
    if mode is None:
        path = "tool_choice.type"
        raise RequestInvalid(f"{path} must be auto, any, tool or none.", path)
    name = value.get("name") if value["type"] == "tool" else None
    if value["type"] == "tool" and not isinstance(name, str):
        raise RequestInvalid("tool_choice.name must name a tool.", "tool_choice.name")
    return ToolChoice(mode, name, parallel=value.get("disable_parallel_tool_use") is not True)


def _template_args(body: CountFields) -> dict[str, Any]:
    """What the template is told of how much to think."""
    args: dict[str, Any] = {}
    if body.thinking is not None:
        args["enable_thinking"] = body.thinking.get("type") != "disabled"
    effort = (body.output_config or {}).get("effort")
    if isinstance(effort, str):
        args["reasoning_effort"] = effort
    return args


def _constraint(body: MessagesFields) -> Constraint | None:
    value = (body.output_config or {}).get("format")
    if not isinstance(value, dict):
        return None
    fields = cast(dict[str, Any], value)
    path = "output_config.format"
    if fields.get("type") != "json_schema":
        raise RequestInvalid(f"{path}.type must be json_schema.", f"{path}.type")
    return schema_of(fields.get("schema"), f"{path}.schema")
