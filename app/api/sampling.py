"""The fields that chat and plain completions share, and what they mean inside."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, cast

from pydantic import Field

from app.api.body import Body, Whole
from models.chat import Constraint, ConstraintKind, Limits, Sampling
from models.errors import RequestInvalid

MAX_CHOICES = 16
MAX_STOPS = 16
_INT32 = 2**31 - 1
_INT63 = 2**63
Penalty = Annotated[float, Field(ge=-2, le=2)]
Repeat = Annotated[float, Field(gt=0, le=10)]
TokenCount = Annotated[Whole, Field(ge=1)]
TopCount = Annotated[Whole, Field(ge=0, le=20)]


class StreamOptions(Body):
    """What else a stream carries."""

    include_usage: bool | None = None


class SharedFields(Body):
    """Fields of every OpenAI dialect that generates; null is the same as leaving one out."""

    model: str = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None
    n: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: TokenCount | None = None
    temperature: Annotated[float, Field(ge=0, le=5)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[Whole, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repeat_penalty: Repeat | None = None
    repetition_penalty: Repeat | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: Annotated[Whole, Field(ge=-_INT63, lt=_INT63)] | None = None
    stop: Any = None
    response_format: Any = None

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


def sampling_of(body: SharedFields) -> Sampling:
    """How tokens are drawn; what is not given keeps our defaults."""
    repeat = body.repeat_penalty if body.repeat_penalty is not None else body.repetition_penalty
    given: dict[str, Any] = {
        "temperature": body.temperature,
        "top_k": None if body.top_k is None else min(max(body.top_k, 0), _INT32),
        "top_p": body.top_p,
        "min_p": body.min_p,
        "repeat_penalty": repeat,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "logit_bias": _bias(body.logit_bias or {}),
        # llama.cpp's and Ollama's clients write -1 for "any"
        "seed": None if body.seed in (None, -1) else body.seed % _INT63,
    }
    return Sampling(**{key: value for key, value in given.items() if value is not None})


def seeded(sampling: Sampling, choice: int) -> Sampling:
    """The sampling of one of several choices: each draws from its own stream."""
    if sampling.seed is None or choice == 0:
        return sampling
    return replace(sampling, seed=(sampling.seed + choice) % _INT63)


def _bias(bias: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    for key in bias:
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) <= _INT32):
            path = f"logit_bias.{key}"
            raise RequestInvalid(f"{path[:60]}: keys must be token ids (whole numbers).", path[:60])
    return tuple((int(key), value) for key, value in bias.items())


def limits_of(max_tokens: int | None, stop: Any) -> Limits:
    """When to stop."""
    return Limits(None if max_tokens is None else min(max_tokens, _INT32), _stops(stop))


def _stops(stop: Any) -> tuple[str, ...]:
    stops: Any = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list):
        raise RequestInvalid("stop must be a string or a list of strings.", "stop")
    listed = cast(list[Any], stops)
    if len(listed) > MAX_STOPS:
        raise RequestInvalid(f"stop may hold at most {MAX_STOPS} strings.", "stop")
    for index, item in enumerate(listed):
        if not isinstance(item, str) or not item:
            path = "stop" if isinstance(stop, str) else f"stop.{index}"
            raise RequestInvalid(f"{path} must be a string that is not empty.", path)
    return tuple(listed)


def constraint_of(value: Any) -> Constraint | None:
    """`response_format` in each spelling in use."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RequestInvalid("response_format must be an object.", "response_format")
    fields = cast(dict[str, Any], value)
    match fields.get("type"):
        case "text":
            return None
        case "json_object" if fields.get("schema") is None:
            return Constraint(ConstraintKind.JSON_OBJECT)
        case "json_object":
            return _schema(fields["schema"], "response_format.schema")
        case "json_schema":
            holder = fields.get("json_schema")
            if isinstance(holder, dict):
                inner = cast(dict[str, Any], holder)
                return _schema(inner.get("schema"), "response_format.json_schema.schema")
            if holder is None and "schema" in fields:
                return _schema(fields["schema"], "response_format.schema")
            path = "response_format.json_schema"
            raise RequestInvalid(f"{path} must be an object with a schema.", path)
        case _:
            path = "response_format.type"
            raise RequestInvalid(f"{path} must be text, json_object or json_schema.", path)


def _schema(schema: Any, path: str) -> Constraint:
    if not isinstance(schema, dict):
        raise RequestInvalid(f"{path} must be a JSON schema (an object).", path)
    # The order of keys is kept: it is the order in which the answer's properties are written.
    try:
        source = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise RequestInvalid(f"{path} holds a number that is not finite.", path) from None
    return Constraint(ConstraintKind.JSON_SCHEMA, source)
