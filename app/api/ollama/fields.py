"""What Ollama's clients send, as the one internal request; every refusal names the field."""

from typing import Any, cast

from pydantic import Field

from app.api.body import Body, Whole
from app.api.constraint import schema_of
from app.api.conversation import ChatMessage, ChatTool, conversation_of
from app.api.notices import Notices
from app.api.sampling import SharedFields, TopCount, limits_of, priority_of, sampling_of
from models.chat import (
    Constraint,
    ConstraintKind,
    Conversation,
    Message,
    RawPrompt,
    Request,
    Role,
)
from models.errors import RequestInvalid

_EFFORTS = ("low", "medium", "high", "max")


class Options(SharedFields):
    """`options`: how tokens are drawn, and how many. What concerns Ollama's own engine is
    ignored."""

    model: str = ""
    num_predict: Whole | None = None
    num_ctx: Whole | None = None


class AnswerFields(Body):
    """What chat and generate share."""

    model: str = Field(min_length=1)
    stream: bool | None = None
    format: Any = None
    options: Options | None = None
    keep_alive: str | float | None = None
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: TopCount | None = None

    @property
    def num_ctx(self) -> int:
        return (self.options and self.options.num_ctx) or 0


class OllamaChatFields(AnswerFields):
    """`POST /api/chat`."""

    messages: list[ChatMessage] | None = None
    tools: list[ChatTool] | None = None


class GenerateFields(AnswerFields):
    """`POST /api/generate`."""

    prompt: str | None = None
    system: str | None = None
    template: str | None = None
    suffix: str | None = None
    images: list[Any] | None = None
    context: list[Any] | None = None
    raw: bool | None = None


def leaves_at_once(keep_alive: str | float | None) -> bool:
    """Whether a duration is 0, in any of its spellings."""
    if isinstance(keep_alive, str):
        return keep_alive.strip().rstrip("hmsuµn") in ("0", "0.0")
    return keep_alive == 0


def chat_request(body: OllamaChatFields, priority: str | None = None) -> Request:
    """A conversation. Raises RequestInvalid."""
    messages = _messages(body.messages or [])
    prompt = conversation_of(messages, body.tools or [], _template_args(body.think))
    return _request(body, prompt, priority)


def generate_request(
    body: GenerateFields, notices: Notices, priority: str | None = None
) -> Request:
    """A prompt, as it is or as a user's turn. Raises RequestInvalid."""
    if body.images:
        raise RequestInvalid("images: only text is taken, no images.", "images")
    if body.context:
        text = "context: no tokens are taken back; send the conversation to /api/chat."
        raise RequestInvalid(text, "context")
    prompt = body.prompt or ""
    if body.suffix:  # a template has no place for it, the vocabulary has marks
        return _request(body, RawPrompt(prompt, suffix=body.suffix), priority)
    if body.raw:
        for field in ("system", "template"):
            if getattr(body, field):
                raise RequestInvalid(f"{field} has no place in a raw prompt.", field)
        return _request(body, RawPrompt(prompt), priority)
    if body.template:
        # It is in Go's template language, and would bypass the markup that the model knows.
        notices.once("template is ignored; a model's own is used (said once)")
    system = (Message(Role.SYSTEM, body.system),) if body.system else ()
    turns = (*system, Message(Role.USER, prompt))
    return _request(body, Conversation(turns, (), _template_args(body.think)), priority)


def _request(body: AnswerFields, prompt: Conversation | RawPrompt, priority: str | None) -> Request:
    options = body.options or Options()
    if body.top_logprobs and not body.logprobs:
        raise RequestInvalid("top_logprobs needs logprobs to be true.", "top_logprobs")
    wanted = options.num_predict or 0  # 0, -1 and -2 all mean: as many as fit
    return Request(
        model=body.model,
        prompt=prompt,
        sampling=sampling_of(options),
        limits=limits_of(wanted if wanted > 0 else None, options.stop),
        constraint=_constraint(body.format),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        priority=priority_of(options, priority),
    )


def _constraint(format: Any) -> Constraint | None:
    match format:
        case None | "":
            return None
        case "json":
            return Constraint(ConstraintKind.JSON_OBJECT)
        case dict():
            return schema_of(cast(dict[str, Any], format), "format")
        case _:
            raise RequestInvalid('format must be "json" or a JSON schema.', "format")


def _template_args(think: bool | str | None) -> dict[str, Any]:
    """Thinking in the words that templates ask for."""
    match think:
        case None | "":
            return {}
        case bool():
            return {"enable_thinking": think}
        case effort if effort in _EFFORTS:
            return {"enable_thinking": True, "reasoning_effort": effort}
        case _:
            text = f"think must be true, false or one of {', '.join(_EFFORTS)}."
            raise RequestInvalid(text, "think")


def _messages(messages: list[Any]) -> list[Any]:
    """Ollama's messages in OpenAI's words. Calls there have no ids, so that a tool's reply belongs
    to the call of its name, or to the first that has none yet."""
    open_calls: list[tuple[str, Any]] = []
    out: list[Any] = []
    for index, item in enumerate(messages):
        if not isinstance(item, dict):
            out.append(item)
            continue
        fields = dict(cast(dict[str, Any], item))
        if fields.get("images"):
            path = f"messages.{index}.images"
            raise RequestInvalid(f"{path}: only text is taken, no images.", path)
        if fields.get("thinking"):
            fields["reasoning_content"] = fields["thinking"]
        if isinstance(fields.get("tool_calls"), list):
            fields["tool_calls"] = _with_ids(fields["tool_calls"], index)
            open_calls = [(call["id"], _name(call)) for call in _objects(fields["tool_calls"])]
        if fields.get("role") == "tool":
            name = fields["name"] = fields.get("tool_name") or fields.get("name")
            fields["tool_call_id"] = fields.get("tool_call_id") or _taken(open_calls, name)
        out.append(fields)
    return out


def _objects(calls: list[Any]) -> list[dict[str, Any]]:
    return [cast(dict[str, Any], call) for call in calls if isinstance(call, dict)]


def _with_ids(calls: list[Any], turn: int) -> list[Any]:
    return [
        {"id": f"call_{turn}_{n}", **cast(dict[str, Any], call)} if isinstance(call, dict) else call
        for n, call in enumerate(calls)
    ]


def _name(call: dict[str, Any]) -> Any:
    function = call.get("function")
    return cast(dict[str, Any], function).get("name") if isinstance(function, dict) else None


def _taken(open_calls: list[tuple[str, Any]], name: Any) -> str | None:
    """The id of the call that a reply answers; it is answered then."""
    if not open_calls:
        return None
    place = next((i for i, call in enumerate(open_calls) if call[1] == name), 0)
    return open_calls.pop(place)[0]
