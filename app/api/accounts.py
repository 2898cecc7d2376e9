"""What an answer cost and how sure the model was, in OpenAI's shapes."""

from collections.abc import Sequence
from typing import Any

from app.api.reply import Answer
from models.chat import Prompted, Timings, TokenLogprob, Usage


def usage(usages: Sequence[Usage], per_prompt: int) -> dict[str, Any]:
    """The sum over all choices; a prompt that several choices share counts once."""
    prompts = usages[::per_prompt]
    prompt_tokens = sum(item.prompt_tokens for item in prompts)
    completion_tokens = sum(item.completion_tokens for item in usages)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(item.cached_tokens for item in prompts)},
        "completion_tokens_details": {
            "reasoning_tokens": sum(item.reasoning_tokens for item in usages)
        },
    }


def timings(times: Timings, used: Usage) -> dict[str, Any]:
    """Where the time went, in milliseconds, with the tokens to divide it by."""
    miss = times.miss
    told = {"token": miss.token, "message": miss.message, "reason": miss.reason} if miss else None
    return {
        "queue_ms": round(times.queue_s * 1000, 3),
        "prefill_ms": round(times.prefill_s * 1000, 3),
        "decode_ms": round(times.decode_s * 1000, 3),
        "prompt_tokens": used.prompt_tokens,
        "cached_tokens": used.cached_tokens,
        "completion_tokens": used.completion_tokens,
        "cache_miss": told,
    }


def summary(answers: Sequence[Answer], per_prompt: int) -> dict[str, Any]:
    """Usage and timings of a whole reply; the timings are those of the choice that took longest."""
    slowest = max(answers, key=lambda answer: answer.timings.decode_s)
    return {
        "usage": usage([answer.usage for answer in answers], per_prompt),
        "timings": timings(slowest.timings, slowest.usage),
    }


def text_of(token: bytes) -> str:
    """A token as text; half a character shows as the replacement mark, its bytes stay exact."""
    return token.decode("utf-8", "replace")


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """`logprobs` of a chat choice."""
    content = [
        _entry(item.token, item.logprob)
        | {"top_logprobs": [_entry(token, logprob) for token, logprob in item.top]}
        for item in tokens
    ]
    return {"content": content, "refusal": None}


def _entry(token: bytes, logprob: float) -> dict[str, Any]:
    # JSON has no minus infinity: a token ruled out entirely is written as OpenAI does.
    return {"token": text_of(token), "logprob": max(logprob, -9999.0), "bytes": list(token)}


def plain_logprobs(tokens: Sequence[TokenLogprob], offset: int) -> dict[str, Any]:
    """`logprobs` of a plain completion's choice whose text begins at `offset` characters."""
    offsets: list[int] = []
    for item in tokens:
        offsets.append(offset)
        offset += len(text_of(item.token))
    return {
        "tokens": [text_of(item.token) for item in tokens],
        "token_logprobs": [max(item.logprob, -9999.0) for item in tokens],
        "top_logprobs": [_alternatives(item) for item in tokens],
        "text_offset": offsets,
    }


def prompt_logprobs(prompted: Prompted) -> dict[str, Any]:
    """`logprobs` of a prompt that is given back: nothing can be said of its first token."""
    told = plain_logprobs(prompted.tokens, len(text_of(prompted.first)) - prompted.lead)
    return {
        "tokens": [text_of(prompted.first), *told["tokens"]],
        "token_logprobs": [None, *told["token_logprobs"]],
        "top_logprobs": [None, *told["top_logprobs"]],
        "text_offset": [0, *told["text_offset"]],
    }


def _alternatives(item: TokenLogprob) -> dict[str, float]:
    found: dict[str, float] = {}
    for token, logprob in (*item.top, (item.token, item.logprob)):
        found.setdefault(text_of(token), max(logprob, -9999.0))
    return found
