"""Requests that no client in its right mind sends, for every route: wrong values at every field,
broken bodies, odd headers. Strategies only; the tests send them."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from app.api.description import body_of
from app.api.examples import EXAMPLES
from app.server import ROUTERS

MODEL = "tiny"
_DEPTHS = (3, 40, 99, 101, 3000)
_WORDS = [
    *(
        "",
        " ",
        "\0",
        "a\0b",
        "\ud800",
        "\udc00 half",
        "\U0001f600",
        "x" * 3000,
        "\r\n",
        "<|im_end|>",
    ),
    *("user", "assistant", "system", "developer", "tool", "function", "wizard", "USER"),
    *("text", "input_text", "image_url", "tool_use", "tool_result", "thinking", "refusal", "audio"),
    *("auto", "none", "required", "any", "json", "json_object", "json_schema", "fold", "message"),
    *("function_call", "function_call_output", "reasoning", "item_reference", "custom", "batch"),
    *("0", "-1", "1e999", "NaN", "5m", "true", "null", "{}", "[", '{"a": 1}', "(", "a{9999}", "[^"),
    *('root ::= "a"', "start: /a/", "../../etc/passwd", "/etc/passwd", "nobody:latest"),
]
_NUMBERS: list[Any] = [
    *(
        0,
        -0,
        1,
        -1,
        2,
        7,
        20,
        21,
        255,
        1 << 31,
        -(1 << 31) - 1,
        1 << 63,
        -(1 << 64),
        10**30,
        10**400,
    ),
    *(0.0, -0.0, 0.5, 1.0, 1e-300, 1e300, float("nan"), float("inf"), float("-inf"), 3.9999999),
]
_KEYS = [
    *("role", "content", "type", "text", "name", "function", "arguments", "parameters", "schema"),
    *("tool_calls", "id", "tool_call_id", "input", "tool_use_id", "call_id", "reasoning_content"),
    *("json_schema", "properties", "items", "enum", "$ref", "format", "image_url", "", "\0", "x"),
]

leaves = (
    st.none()
    | st.booleans()
    | st.sampled_from(_NUMBERS)
    | st.sampled_from(_WORDS)
    | st.text(max_size=8)
    | st.integers()
    | st.floats()
)
_nested = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)
_IN_PARTS = ("text", "thinking", "input", "id", "name", "content", "tool_use_id", "output")
_parts: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"type": st.sampled_from(_WORDS)}, optional=dict.fromkeys(_IN_PARTS, leaves)
)
_turns: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(_WORDS), "content": leaves | st.lists(_parts, max_size=3)},
        optional=dict.fromkeys(("tool_calls", "tool_call_id", "name", "type", "call_id"), _nested),
    ),
    max_size=4,
)


@st.composite
def _deep(draw: st.DrawFn) -> "Deep":
    return Deep(draw(st.sampled_from(_DEPTHS)), draw(st.booleans()))


@dataclass(frozen=True)
class Deep:
    """A value nested so many levels deep."""

    levels: int
    objects: bool

    def text(self) -> str:
        before, after = ('{"a":', "}") if self.objects else ("[", "]")
        return before * self.levels + "1" + after * self.levels


plain = leaves | _nested
values: st.SearchStrategy[Any] = plain | _turns | st.lists(_parts, max_size=3) | _deep()

_SHORT: dict[str, Any] = {"max_tokens": 8, "max_output_tokens": 8, "options": {"num_predict": 8}}
_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
# What means something at a field, so that odd combinations of it reach the engine.
_SENSIBLE: dict[str, list[Any]] = {
    "n": [1, 2, 3],
    "max_tokens": [1, 5, 1 << 40],
    "max_completion_tokens": [1, 1 << 62],
    "max_output_tokens": [1, 4],
    "temperature": [0, 0.0, 1, 5],
    "top_p": [1e-9, 1],
    "top_k": [0, 1, 1 << 60],
    "min_p": [0, 1],
    "seed": [-1, 0, 1 << 62],
    "logprobs": [True, 0, 5],
    "top_logprobs": [0, 3],
    "logit_bias": [{"1": 100}, {"258": -100, "0": 1}, {"99999": 1}],
    "stop": ["e", ["a", "b"], "\U0001f600"],
    "stop_sequences": [["e"], ["", "a"]],
    "response_format": [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"schema": _SCHEMA}},
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/x"}}},
    ],
    "json_schema": [_SCHEMA, {"type": "wizard"}, {"not": {}}],
    "guided_json": [_SCHEMA],
    "guided_regex": ["a+", "(", "(a{99}){99}", "\\", ".*"],
    "guided_choice": [["a", "b"], ["\0"], []],
    "grammar": ['root ::= "a" root', "root ::= root", "start: /a+/", "x"],
    "format": ["json", _SCHEMA],
    "tool_choice": [
        *("auto", "none", "required", {"type": "any"}, {"type": "tool", "name": "get_weather"}),
        {"type": "function", "function": {"name": "get_weather"}},
        {"type": "function", "name": "nobody"},
    ],
    "tools": [[], [{}], [{"type": "web_search"}], [{"name": "get_weather", "input_schema": {}}]],
    "think": [True, "low", "much"],
    "thinking": [{"type": "enabled", "budget_tokens": 5}, {"type": "wizard"}],
    "reasoning": [{"effort": "low"}, {"effort": ""}],
    "reasoning_effort": ["none", "high", "\0"],
    "options": [{"num_predict": 3}, {"num_ctx": 1 << 40, "seed": 1.0}, {"stop": [""]}],
    "prompt": ["", "x" * 2000, ["a", "b"], [1, 2, 258], [[1], [2]], [300], "<|im_start|>"],
    "input": [
        *("", "x" * 2000, [], [{"role": "user", "content": "a"}], ["a", "b"]),
        *([1, 2, 258], [[1], [300]], [""]),
    ],
    "encoding_format": ["base64", "float", "int8"],
    "dimensions": [1, 64, 65, 0],
    "truncate": [True, False],
    "echo": [True],
    "suffix": ["end"],
    "stream": [True, False],
    "stream_options": [{"include_usage": True}],
    "return_progress": [True],
    "raw": [True],
    "store": [False],
    "previous_response_id": ["resp_1"],
    "system": ["", "Be brief.", [{"type": "text", "text": "a"}]],
    "chat_template_kwargs": [{"a": 1}, {"messages": []}],
    "parallel_tool_calls": [False],
    "priority": ["batch"],
    "keep_alive": ["5m", -1],
    "include": [["message.output_text.logprobs"], ["reasoning.encrypted_content"]],
    "text": [{"format": {"type": "json_schema", "schema": _SCHEMA}}, {"format": {}}],
    "tokens": [[], [258, 0], [-1], [1 << 30]],
}


@dataclass(frozen=True)
class Sent:
    """A request as it goes out."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    chunked: bool = False
    leaves: bool = False
    """Whether the client goes away as soon as the answer begins."""


def _routes() -> Iterator[tuple[str, str, list[str]]]:
    for room in ROUTERS:
        for route in room.router.routes:
            kind = body_of(route)
            for method in sorted(route.methods):
                yield method, route.path, sorted(kind.model_fields) if kind else []


ROUTES = list(_routes())
# Those that answer at length are asked the most.
_WEIGHTED = [route for route in ROUTES for _ in range(9 if "stream" in route[2] else 1)]
_IN_PATH = [
    "tiny",
    "nobody",
    "resp_1",
    "%00",
    "%ff",
    "a%2Fb",
    "..%2f..",
    "x" * 3000,
    "%F0%9F%98%80",
]
_HEADERS: list[dict[str, str]] = [
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "application/json; charset=utf-16"},
    {"content-type": "multipart/form-data; boundary=x"},
    {"content-type": "\x7f;;"},
    {"content-encoding": "gzip"},
    {"x-runner-priority": "batch"},
    {"x-runner-priority": "sometime"},
    {"accept": "text/event-stream"},
    {"expect": "100-continue"},
    {"authorization": "Bearer"},
    {"anthropic-beta": ",,", "anthropic-version": "never"},
]


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    """One request to one of the routes."""
    method, path, fields = draw(st.sampled_from(_WEIGHTED))
    while "{" in path:
        before, _, rest = path.partition("{")
        path = before + draw(st.sampled_from(_IN_PATH)) + rest.partition("}")[2]
    if method in ("GET", "HEAD"):
        query = draw(
            st.sampled_from(["", "", "?limit=0", "?limit=%00&after=x", "?stream=1&model="])
        )
        return Sent(method, path + query, leaves=draw(st.booleans()))
    if _rarely(draw, 30):
        method = draw(st.sampled_from(["PUT", "PATCH", "GET", "DELETE", "OPTIONS"]))
    headers = {
        "content-type": "application/json",
        **(draw(st.sampled_from(_HEADERS)) if _rarely(draw, 10) else {}),
    }
    body = draw(_bodies(method, path, fields))
    chunked, leaves = draw(st.booleans()), _rarely(draw, 10)
    return Sent(method, path, body, headers, chunked, leaves)


@st.composite
def _bodies(draw: st.DrawFn, method: str, path: str, fields: list[str]) -> bytes:
    if _rarely(draw, 30):
        return draw(st.binary(max_size=40))
    body: Any = copy.deepcopy(EXAMPLES.get((method, path), {}))
    if method != "DELETE":  # the model has to be there afterwards
        body["model"] = MODEL
    if "stream" in fields:
        body["stream"] = draw(st.booleans())
    for name, limit in _SHORT.items():
        if name in fields:
            body[name] = copy.deepcopy(limit)
    doubled: list[tuple[str, Any]] = []
    for change in draw(st.lists(st.sampled_from(_CHANGES), max_size=3)):
        match change:
            case "sensible" if known := [name for name in fields if name in _SENSIBLE]:
                name = draw(st.sampled_from(known))
                body[name] = copy.deepcopy(draw(st.sampled_from(_SENSIBLE[name])))
            case "odd" if fields:
                body[draw(st.sampled_from(fields))] = draw(values)
            case "inside" if body:
                _spoil(draw, body)
            case "missing" if body:
                body.pop(draw(st.sampled_from(sorted(body))))
            case "double" if fields:
                doubled.append((draw(st.sampled_from(fields)), draw(values)))
            case _:
                body["x"] = draw(values)
    for name, limit in _SHORT.items():  # answers without an end are right, and take their time
        if name in fields and body.get(name) is None and not _rarely(draw, 20):
            body[name] = copy.deepcopy(limit)
    return _broken(draw, _written(body, doubled))


_CHANGES = [*("sensible",) * 3, "odd", "odd", "inside", "inside", "missing", "double"]


def _rarely(draw: st.DrawFn, one_in: int) -> bool:
    """Edges come far more often than their share: what is rare must not be one."""
    return draw(st.integers(0, 2 * one_in)) == one_in + 1


def _spoil(draw: st.DrawFn, body: Any) -> None:
    """Put a strange value somewhere inside."""
    at = body
    while True:
        keys = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or draw(st.booleans()):
            at[key] = draw(values)
            return
        at = at[key]


def _written(body: Any, doubled: list[tuple[str, Any]]) -> bytes:
    """JSON text, some of whose keys come twice."""
    deep: list[str] = []

    def other(value: Any) -> Any:
        assert isinstance(value, Deep)
        deep.append(value.text())
        return f"deep-{len(deep)}"

    text = json.dumps(body, default=other)
    for key, value in doubled:
        text = "{" + f"{json.dumps(key)}: {json.dumps(value, default=other)}, " + text[1:]
        text = text.replace(", }", "}")
    for number, inner in enumerate(deep, 1):
        text = text.replace(f'"deep-{number}"', inner)
    return text.encode()


def _broken(draw: st.DrawFn, text: bytes) -> bytes:
    """The text, mostly as it is."""
    if not _rarely(draw, 10):
        return text
    match draw(st.integers(0, 4)):
        case 0:
            return text[: draw(st.integers(0, len(text)))]
        case 1:
            return text + draw(st.sampled_from([b",", b"}", b"\0", b"\xff", b" {}"]))
        case 2:
            return b"\xef\xbb\xbf" + text
        case 3:
            return text.decode().encode("utf-16")
        case _:
            return b"[" + text + b"]"
