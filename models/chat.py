"""What is asked and what comes back: one request, one stream of events, for every dialect."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the assistant made; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A function offered to the model; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    deferred: bool = False
    """Not part of the prompt, since the conversation itself introduces it; it may be called."""
    strict: bool = False
    """Arguments must fit `parameters`: where that cannot be enforced, the request is refused."""


class ToolMode(StrEnum):
    """Whether the model may, must or must not call a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What the answer may call: of a `name` only that one; with `parallel` several at once."""

    mode: ToolMode = ToolMode.AUTO
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt to be rendered by the model's chat template."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    template_args: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A prompt taken as it is: text, or token ids of the model's own vocabulary.

    With `echo` it comes back as `Prompted`. Where there is a `suffix`, what belongs between the two
    is asked for."""

    content: str | tuple[int, ...]
    echo: bool = False
    suffix: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn. `temperature` 0 is greedy; neutral values switch a filter
    off."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None


class ConstraintKind(StrEnum):
    """In which language a constraint is written."""

    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    GRAMMAR = "grammar"
    """llama.cpp's GBNF, or llguidance's Lark."""
    CALLS = "calls"
    """Calls of tools, as llguidance's Lark."""
    ANSWER = "answer"
    """The same, or text of a given shape."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A shape the whole answer must have; `source` is the schema (JSON text), regex or grammar."""

    kind: ConstraintKind
    source: str = ""


class Priority(StrEnum):
    """Whose turn comes first when not all can run."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: `max_tokens` (None: as many as fit; 0: the prompt is read, and that is all) and
    stop strings, which are not shown."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One question to one model. `logprobs`: how many alternatives a token (0: the chosen one
    alone; None: off)."""

    model: str
    prompt: Conversation | RawPrompt
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    constraint: Constraint | None = None
    tool_choice: ToolChoice = ToolChoice()
    logprobs: int | None = None
    priority: Priority = Priority.INTERACTIVE


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. `prompt_tokens` includes `cached_tokens`; `completion_tokens` includes reasoning."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class MissReason(StrEnum):
    """Why the rest of a prompt was not in the cache."""

    NEW = "new"
    """No earlier prompt began like this one."""
    DIFFERS = "differs"
    """From here on it differs from every earlier prompt that is remembered."""
    GONE = "gone"
    """It was there once, and had to leave, or could not be continued from there."""


@dataclass(frozen=True, slots=True)
class Miss:
    """The first token of a prompt that could not be taken from the cache, the message it is in (as
    the template wrote them, from 0), and why."""

    token: int
    message: int
    reason: MissReason


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: waiting in the queue, reading the prompt, and writing the answer. `miss` says why
    not all of the prompt came from the cache."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    miss: Miss | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's bytes and its natural-log probability under the full softmax, before any filter."""

    token: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Loading:
    """The model is being loaded: `fraction` of its weights are in memory."""

    fraction: float


@dataclass(frozen=True, slots=True)
class Started:
    """The request was accepted: its prompt's length, and the context it may grow to."""

    prompt_tokens: int
    context: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """The prompt is being read: `done` of `total` tokens, of which `cached` were not computed."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Prompted:
    """The prompt given back, before the answer. Where logprobs were asked for, `first` is its first
    token, about which nothing can be said, and `tokens` are those after it. What the vocabulary
    puts before every text is the first `lead` characters of these, and not in the `text`."""

    text: str
    first: bytes = b""
    tokens: tuple[TokenLogprob, ...] = ()
    lead: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A tool call begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call's arguments (JSON text)."""

    index: int
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """A tool call is complete."""

    index: int


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The logprobs of the tokens behind the piece of text that follows."""

    tokens: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. Always the last event. `stop` is the stop string that ended it."""

    reason: FinishReason
    usage: Usage
    timings: Timings
    stop: str | None = None


Event = (
    Loading
    | Started
    | Prefill
    | Prompted
    | Text
    | Reasoning
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | Logprobs
    | Finished
)
