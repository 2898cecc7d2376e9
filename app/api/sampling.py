"""The fields that chat and plain completions share, and what they mean inside."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol, cast

from pydantic import Field

from app.api.body import Body, Whole
from models.chat import Limits, Priority, Sampling
from models.errors import RequestInvalid

MAX_CHOICES = 16
MAX_STOPS = 16
PRIORITY_HEADER = "x-runner-priority"
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
    # llama-server's and vLLM's names for other shapes
    json_schema: Any = None
    grammar: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    priority: Literal["interactive", "batch"] | None = None
    service_tier: Any = None

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


# OpenAI's names for work that may wait.
_PATIENT_TIERS = ("batch", "flex")


class Prioritised(Protocol):
    """Fields that say how urgent a request is."""

    @property
    def priority(self) -> Literal["interactive", "batch"] | None: ...

    @property
    def service_tier(self) -> Any: ...


def priority_of(body: Prioritised, header: str | None) -> Priority:
    """Whose turn comes first when not all can run: the field, else the header, else OpenAI's
    service tier. Raises RequestInvalid."""
    if body.priority is not None:
        return Priority(body.priority)
    if header is not None:
        try:
            return Priority(header.strip().lower())
        except ValueError:
            raise RequestInvalid(
                f"{PRIORITY_HEADER} must be interactive or batch.", PRIORITY_HEADER
            ) from None
    return Priority.BATCH if body.service_tier in _PATIENT_TIERS else Priority.INTERACTIVE
