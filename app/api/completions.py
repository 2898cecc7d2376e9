"""`POST /v1/completions`: text or token ids continued, in OpenAI's older dialect."""

import dataclasses
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi import Request as HttpRequest
from fastapi.responses import Response
from pydantic import Field

from app.api import accounts
from app.api.body import Reads, Whole
from app.api.constraint import constraint_of
from app.api.errors import Fault
from app.api.generations import Piece
from app.api.reply import DONE, Answer, Reply, frame
from app.api.sampling import (
    PRIORITY_HEADER,
    SharedFields,
    TopCount,
    limits_of,
    priority_of,
    sampling_of,
    seeded,
)
from app.api.texts import TextOrTokens, texts_of
from models.chat import (
    Finished,
    Logprobs,
    Prefill,
    Prompted,
    RawPrompt,
    Request,
    Text,
    TokenLogprob,
)
from models.errors import RequestInvalid

router = APIRouter()

DEFAULT_MAX_TOKENS = 16  # the dialect's own documented default
MAX_PROMPTS = 256


class CompletionFields(SharedFields):
    """What a plain completion may ask for, beside the shared fields."""

    prompt: Any
    logprobs: TopCount | None = None
    max_tokens: Annotated[Whole, Field(ge=0)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    best_of: Whole | None = None


@router.post("/v1/completions")
async def create_completion(
    http: HttpRequest, body: Annotated[CompletionFields, Depends(Reads(CompletionFields))]
) -> Response:
    """Continue one or more prompts."""
    http.state.model = body.model
    prompts = texts_of(body.prompt, "prompt", MAX_PROMPTS)
    requests = requests_of(body, prompts, http.headers.get(PRIORITY_HEADER))
    dialect = CompletionDialect(body, prompts)
    state = http.app.state
    return Reply(state.host, requests, dialect, state.pace, stream=bool(body.stream))


def requests_of(
    body: CompletionFields, prompts: Sequence[TextOrTokens], priority: str | None = None
) -> list[Request]:
    """Each prompt times `n`, in the order of the choices. Raises RequestInvalid."""
    choices = body.n or 1
    _check(body, prompts, choices)
    raw = RawPrompt("", echo=bool(body.echo), suffix=body.suffix or None)
    first = Request(
        model=body.model,
        prompt=raw,
        sampling=sampling_of(body),
        limits=limits_of(
            DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens, body.stop
        ),
        constraint=constraint_of(body),
        logprobs=body.logprobs,
        priority=priority_of(body, priority),
    )
    return [
        dataclasses.replace(
            first,
            prompt=dataclasses.replace(raw, content=prompt),
            sampling=seeded(first.sampling, choice),
        )
        for prompt in prompts
        for choice in range(choices)
    ]


def _check(body: CompletionFields, prompts: Sequence[TextOrTokens], choices: int) -> None:
    if len(prompts) * choices > MAX_PROMPTS:
        raise RequestInvalid(f"prompts times n may be at most {MAX_PROMPTS}.", "n")
    if body.best_of is not None and body.best_of != choices:
        text = "best_of is not supported other than equal to n: ask for n and choose yourself."
        raise RequestInvalid(text, "best_of")
    if body.suffix and body.echo and body.logprobs is not None:
        raise RequestInvalid("echo with logprobs is not supported beside suffix.", "suffix")


class CompletionDialect:
    """Writes chunks, or the whole completion, of one plain request."""

    def __init__(self, body: CompletionFields, prompts: Sequence[TextOrTokens]) -> None:
        self._per_prompt = body.n or 1
        self._choices = len(prompts) * self._per_prompt
        self._usage = body.wants_usage
        self._progress = bool(body.return_progress)
        self._logprobs = body.logprobs is not None
        self._pending: list[list[TokenLogprob]] = [[] for _ in range(self._choices)]
        self._offsets = [0] * self._choices
        self._ends: dict[int, Finished] = {}
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": body.model,
        }

    def opening(self, prompt_tokens: int | None) -> Iterable[bytes]:
        for choice in range(self._choices):
            yield self._chunk(choice, "")

    def pieces(self, piece: Piece) -> Iterable[bytes]:
        choice = piece.choice
        match piece.event:
            case Prompted(text) as prompted:
                yield self._chunk(choice, text, before=prompted)
                self._offsets[choice] = len(text)
            case Text(text) if text:
                yield self._chunk(choice, text)
            case Logprobs(tokens):
                self._pending[choice].extend(tokens)
            case Finished(reason, used, timings) as end:
                self._ends[choice] = end
                more = {"timings": accounts.timings(timings, used)}
                yield self._chunk(choice, "", reason.value, more)
            case Prefill(done, total, cached) if self._progress:
                progress = {"total": total, "cache": cached, "processed": done}
                yield self._chunk(choice, "", None, {"prompt_progress": progress})
            case _:
                pass

    def idle(self, choice: int) -> bytes:
        return self._chunk(choice, "")

    def closing(self) -> Iterable[bytes]:
        if self._usage:
            ends = [self._ends[choice].usage for choice in range(self._choices)]
            used = accounts.usage(ends, self._per_prompt)
            yield frame({**self._head, "choices": [], "usage": used})
        yield DONE

    def failure(self, fault: Fault) -> Iterable[bytes]:
        yield frame(fault.body())
        yield DONE

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        choices = [
            {
                "index": choice,
                "text": (answer.prompted.text if answer.prompted else "") + "".join(answer.text),
                "logprobs": self._all_logprobs(answer) if self._logprobs else None,
                "finish_reason": answer.reason.value,
            }
            for choice, answer in enumerate(answers)
        ]
        return {**self._head, "choices": choices, **accounts.summary(answers, self._per_prompt)}

    def _all_logprobs(self, answer: Answer) -> dict[str, Any]:
        if answer.prompted is None:
            return accounts.plain_logprobs(answer.logprobs, 0)
        before = accounts.prompt_logprobs(answer.prompted)
        after = accounts.plain_logprobs(answer.logprobs, len(answer.prompted.text))
        return {key: before[key] + after[key] for key in before}

    def _chunk(
        self,
        choice: int,
        text: str,
        finish: str | None = None,
        more: dict[str, Any] | None = None,
        before: Prompted | None = None,
    ) -> bytes:
        entry: dict[str, Any] = {"index": choice, "text": text, "logprobs": None}
        entry["finish_reason"] = finish
        pending = self._pending[choice]
        if before is not None and self._logprobs:
            entry["logprobs"] = accounts.prompt_logprobs(before)
        elif pending and (text or finish):
            entry["logprobs"] = accounts.plain_logprobs(pending, self._offsets[choice])
            self._offsets[choice] += sum(len(accounts.text_of(item.token)) for item in pending)
            self._pending[choice] = []
        data: dict[str, Any] = {**self._head, "choices": [entry], **(more or {})}
        if self._usage:
            data["usage"] = None
        return frame(data)
