"""`POST /v1/chat/completions`: OpenAI's chat dialect, from its fields and into its chunks."""

import dataclasses
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import Response

from app.api import accounts
from app.api.body import Reads
from app.api.constraint import constraint_of
from app.api.conversation import ChatMessage, ChatTool, conversation_of
from app.api.errors import Fault
from app.api.generations import Piece
from app.api.reply import DONE, Answer, Reply, frame
from app.api.sampling import (
    PRIORITY_HEADER,
    SharedFields,
    TokenCount,
    TopCount,
    limits_of,
    priority_of,
    sampling_of,
    seeded,
)
from app.api.toolchoice import checked, tool_choice_of
from models.chat import (
    Finished,
    Loading,
    Logprobs,
    Prefill,
    Reasoning,
    Request,
    Text,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    ToolMode,
)
from models.errors import RequestInvalid

router = APIRouter()


class ChatFields(SharedFields):
    """What a chat completion may ask for, beside the shared fields."""

    messages: list[ChatMessage]
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: TopCount | None = None
    tools: list[ChatTool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    functions: list[Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


@router.post("/v1/chat/completions")
async def create_chat_completion(
    http: HttpRequest, body: Annotated[ChatFields, Depends(Reads(ChatFields))]
) -> Response:
    """Answer a conversation."""
    http.state.model = body.model
    state = http.app.state
    header = http.headers.get(PRIORITY_HEADER)
    first = request_of(body, header)
    requests = [
        dataclasses.replace(first, sampling=seeded(first.sampling, choice))
        for choice in range(body.n or 1)
    ]
    return Reply(state.host, requests, ChatDialect(body), state.pace, stream=bool(body.stream))


def request_of(body: ChatFields, priority: str | None = None) -> Request:
    """The fields as the one internal request. Raises RequestInvalid."""
    if body.functions:
        raise RequestInvalid("functions is no longer used: send tools instead.", "functions")
    if body.top_logprobs and not body.logprobs:
        raise RequestInvalid("top_logprobs needs logprobs to be true.", "top_logprobs")
    limits = [n for n in (body.max_tokens, body.max_completion_tokens) if n is not None]
    choice = tool_choice_of(body.tool_choice, body.parallel_tool_calls)
    tools = [] if choice.mode is ToolMode.NONE else body.tools or []
    prompt = conversation_of(body.messages, tools, _template_args(body))
    return Request(
        model=body.model,
        prompt=prompt,
        tool_choice=checked(choice, {tool.name for tool in prompt.tools}),
        sampling=sampling_of(body),
        limits=limits_of(min(limits, default=None), body.stop),
        constraint=constraint_of(body),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        priority=priority_of(body, priority),
    )


def _template_args(body: ChatFields) -> dict[str, Any]:
    """What the template is told besides the messages: how much to think is the template's to know,
    some ask for the effort, some only whether."""
    given = dict(body.chat_template_kwargs or {})
    if (effort := body.reasoning_effort) is not None:
        given = {"reasoning_effort": effort, "enable_thinking": effort != "none", **given}
    return given


class ChatDialect:
    """Writes chunks, or the whole completion, of one chat request."""

    def __init__(self, body: ChatFields) -> None:
        self._choices = body.n or 1
        self._usage = body.wants_usage
        self._progress = bool(body.return_progress)
        self._logprobs = bool(body.logprobs)
        self._pending: list[list[TokenLogprob]] = [[] for _ in range(self._choices)]
        self._ends: dict[int, Finished] = {}
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.model,
        }

    def opening(self, prompt_tokens: int | None) -> Iterable[bytes]:
        for choice in range(self._choices):
            yield self._chunk(choice, {"role": "assistant", "content": ""})

    def pieces(self, piece: Piece) -> Iterable[bytes]:
        choice = piece.choice
        match piece.event:
            case Text(text) if text:
                yield self._chunk(choice, {"content": text})
            case Reasoning(text) if text:
                yield self._chunk(choice, {"reasoning_content": text})
            case Logprobs(tokens):
                self._pending[choice].extend(tokens)
            case ToolCallStart(index, id, name):
                call = {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                yield self._chunk(choice, {"tool_calls": [{"index": index, **call}]})
            case ToolCallDelta(index, arguments):
                part = {"index": index, "function": {"arguments": arguments}}
                yield self._chunk(choice, {"tool_calls": [part]})
            case Finished(reason, _, timings) as end:
                self._ends[choice] = end
                more = {"timings": accounts.timings(timings, end.usage)}
                yield self._chunk(choice, {}, reason.value, more)
            case Prefill(done, total, cached) if self._progress:
                progress = {"total": total, "cache": cached, "processed": done}
                yield self._chunk(choice, {"content": ""}, None, {"prompt_progress": progress})
            case Loading(fraction) if self._progress:
                more = {"load_progress": round(fraction, 4)}
                yield self._chunk(choice, {"content": ""}, None, more)
            case _:
                pass

    def idle(self, choice: int) -> bytes:
        return self._chunk(choice, {"content": ""})

    def closing(self) -> Iterable[bytes]:
        if self._usage:
            ends = [self._ends[choice].usage for choice in range(self._choices)]
            yield frame(
                self._object("chat.completion.chunk", [])
                | {"usage": accounts.usage(ends, self._choices)}
            )
        yield DONE

    def failure(self, fault: Fault) -> Iterable[bytes]:
        yield frame(fault.body())
        yield DONE

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "message": _message(answer),
                "logprobs": accounts.chat_logprobs(answer.logprobs) if self._logprobs else None,
                "finish_reason": answer.reason.value,
            }
            for index, answer in enumerate(answers)
        ]
        return self._object("chat.completion", choices) | accounts.summary(answers, self._choices)

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head, "object": kind, "choices": choices}

    def _chunk(
        self,
        choice: int,
        delta: dict[str, Any],
        finish: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> bytes:
        entry: dict[str, Any] = {"index": choice, "delta": delta, "finish_reason": finish}
        pending = self._pending[choice]
        # Entries go with the text of their tokens, never with a chunk that only fills a silence.
        if pending and (delta.get("content") != "" or finish):
            entry["logprobs"] = accounts.chat_logprobs(pending)
            self._pending[choice] = []
        else:
            entry["logprobs"] = None
        data = self._object("chat.completion.chunk", [entry]) | (more or {})
        if self._usage:
            data["usage"] = None
        return frame(data)


def _message(answer: Answer) -> dict[str, Any]:
    text = "".join(answer.text)
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = "".join(answer.reasoning)
    if answer.calls:
        message["content"] = text or None
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in answer.calls
        ]
    return message
