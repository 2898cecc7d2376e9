"""Anthropic's Messages: what is asked, and what comes back event by event."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.api.reply import Pace
from models.chat import (
    Constraint,
    ConstraintKind,
    Conversation,
    Finished,
    FinishReason,
    Limits,
    Message,
    Priority,
    Reasoning,
    Request,
    Role,
    Started,
    Text,
    Timings,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolChoice,
    ToolMode,
    Usage,
)
from models.errors import ContextOverflow, EngineFailed
from tests.app.conftest import Served, serving
from tests.app.scripted import MODEL, Step

ASK = {"role": "user", "content": "Fold it."}
FOLD = {"name": "fold", "description": "Folds.", "input_schema": {"type": "object"}}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 9, "messages": [ASK], **fields}


async def asked(served: Served, **fields: Any) -> Request:
    reply = await served.http.post("/v1/messages", json=body(**fields))
    assert reply.status_code == 200, reply.text
    return served.host.requests[-1]


async def turns(served: Served, **fields: Any) -> tuple[Message, ...]:
    prompt = (await asked(served, **fields)).prompt
    assert isinstance(prompt, Conversation)
    return prompt.messages


async def streamed(served: Served, **fields: Any) -> list[dict[str, Any]]:
    sent = body(stream=True, **fields)
    async with served.http.stream("POST", "/v1/messages", json=sent) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        text = (await reply.aread()).decode()
    return list(_events(text))


def _events(text: str) -> Iterator[dict[str, Any]]:
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


# ---------------------------------------------------------------------- asking


async def test_the_fields_of_a_request(served: Served) -> None:
    request = await asked(
        served, temperature=0.5, top_p=0.9, top_k=7, stop_sequences=["END"], service_tier="auto"
    )
    assert request.limits == Limits(9, ("END",))
    how = request.sampling
    assert (how.temperature, how.top_p, how.top_k) == (0.5, 0.9, 7)
    assert request.priority is Priority.INTERACTIVE


async def test_a_system_prompt_of_blocks_is_a_message_each(served: Served) -> None:
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: 1;"},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
    ]
    said = await turns(served, system=blocks)
    assert [m.role for m in said] == [Role.SYSTEM, Role.SYSTEM, Role.USER]
    assert (await turns(served, system="Be brief."))[0] == Message(Role.SYSTEM, "Be brief.")


async def test_a_late_system_message_is_the_same_in_blocks_and_as_a_string(served: Served) -> None:
    late = [
        [ASK, {"role": "system", "content": content}]
        for content in ("Now.", [{"type": "text", "text": "Now."}])
    ]
    assert await turns(served, messages=late[0]) == await turns(served, messages=late[1])


async def test_a_turn_with_a_tool(served: Served) -> None:
    said = await turns(
        served,
        tools=[FOLD],
        messages=[
            ASK,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "Gladly."},
                    {"type": "tool_use", "id": "t1", "name": "fold", "input": {"a": "é"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "content": [{"type": "text", "text": "folded"}],
                    },
                    {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "t3"},
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
    )
    assert said[1] == Message(
        Role.ASSISTANT, "Gladly.", "Hm.", (ToolCall("t1", "fold", '{"a": "é"}'),)
    )
    assert said[2:] == (
        Message(Role.TOOL, "folded", tool_call_id="t1"),
        Message(Role.TOOL, "Error: no", tool_call_id="t2"),
        Message(Role.TOOL, "", tool_call_id="t3"),
        Message(Role.USER, "And now?"),
    )


async def test_a_deferred_tool_is_told_where_it_is_referred_to(served: Served) -> None:
    found = {"type": "tool_reference", "tool_name": "fold"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [found]}
    messages = [ASK, {"role": "user", "content": [result]}]
    request = await asked(served, tools=[{**FOLD, "defer_loading": True}], messages=messages)
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.tools == (Tool("fold", "Folds.", {"type": "object"}, deferred=True),)
    assert '"name": "fold"' in request.prompt.messages[1].content


async def test_tools_of_anthropics_own_servers_are_left_out_with_one_warning(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    await asked(served, tools=[search, FOLD])
    request = await asked(served, tools=[search, FOLD])
    assert caplog.text.count("'web_search_20250305'") == 1
    assert isinstance(request.prompt, Conversation)
    assert [tool.name for tool in request.prompt.tools] == ["fold"]


@pytest.mark.parametrize(
    ("sent", "choice"),
    [
        ({"type": "auto"}, ToolChoice()),
        ({"type": "any"}, ToolChoice(ToolMode.REQUIRED)),
        ({"type": "tool", "name": "fold"}, ToolChoice(ToolMode.REQUIRED, "fold")),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        ({"type": "none"}, ToolChoice(ToolMode.NONE)),
    ],
)
async def test_tool_choices(served: Served, sent: dict[str, Any], choice: ToolChoice) -> None:
    request = await asked(served, tools=[FOLD], tool_choice=sent)
    assert request.tool_choice == choice
    assert isinstance(request.prompt, Conversation)
    assert len(request.prompt.tools) == (choice.mode is not ToolMode.NONE)


async def test_thinking_effort_and_format(served: Served) -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    request = await asked(
        served,
        thinking={"type": "adaptive"},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}},
    )
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.template_args == {"enable_thinking": True, "reasoning_effort": "low"}
    assert request.constraint == Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    request = await asked(served, thinking={"type": "disabled"})
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.template_args == {"enable_thinking": False}


async def test_what_else_clients_send_is_taken(served: Served) -> None:
    reply = await served.http.post(
        "/v1/messages?beta=true",
        json=body(metadata={"user_id": "u"}, context_management={"edits": []}, container=None),
        headers={"anthropic-version": "2023-06-01", "anthropic-beta": "x-1", "x-api-key": "any"},
    )
    assert reply.status_code == 200


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages.0.content.0",
        ),
        ({"system": 3}, "system"),
        ({"tools": [{"name": "x", "input_schema": 1}]}, "tools.0.input_schema"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [FOLD], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
    ],
)
async def test_a_refusal_names_the_field(
    served: Served, fields: dict[str, Any], named: str
) -> None:
    reply = await served.http.post("/v1/messages", json=body(**fields))
    assert reply.status_code == 400
    told = reply.json()
    assert told["type"] == "error"
    assert told["error"]["type"] == "invalid_request_error"
    assert named in told["error"]["message"]


async def test_tokens_are_counted_as_the_prompt_has_them(served: Served) -> None:
    sent = {"model": MODEL, "messages": [ASK], "system": "Be."}
    reply = await served.http.post("/v1/messages/count_tokens", json=sent)
    assert reply.json() == {"input_tokens": len("Be.Fold it.")}


# ---------------------------------------------------------------------- answers


def rich(request: Request) -> list[Step]:
    return [
        Started(50, 4096),
        Reasoning("Hm"),
        Reasoning("."),
        Text("Now"),
        Text("."),
        ToolCallStart(0, "t1", "fold"),
        ToolCallDelta(0, '{"a":'),
        ToolCallDelta(0, "1}"),
        ToolCallEnd(0),
        ToolCallStart(1, "t2", "fold"),
        ToolCallEnd(1),
        Finished(FinishReason.TOOL_CALLS, Usage(50, 12, 40), Timings()),
    ]


async def test_a_stream_is_blocks_one_after_another(served: Served) -> None:
    served.host.script = rich
    events = await streamed(served)
    assert [e["type"] for e in events] == [
        "message_start",
        "ping",
        *("content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_delta"),
        "content_block_stop",
        *("content_block_start", "content_block_delta", "content_block_delta"),
        "content_block_stop",
        *("content_block_start", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert [e["index"] for e in events if e["type"] == "content_block_start"] == [0, 1, 2, 3]
    kinds = [e["delta"]["type"] for e in events if e["type"] == "content_block_delta"]
    assert kinds[:3] == ["thinking_delta", "thinking_delta", "signature_delta"]
    start = events[0]["message"]
    assert start["usage"]["input_tokens"] == 50
    assert (start["content"], start["stop_reason"]) == ([], None)
    end = events[-2]
    assert end["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert end["usage"] == {
        "input_tokens": 10,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 40,
        "output_tokens": 12,
    }


async def test_a_whole_message_says_the_same(served: Served) -> None:
    served.host.script = rich
    reply = (await served.http.post("/v1/messages", json=body())).json()
    assert reply["type"] == "message"
    assert reply["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "runner"},
        {"type": "text", "text": "Now."},
        {"type": "tool_use", "id": "t1", "name": "fold", "input": {"a": 1}},
        {"type": "tool_use", "id": "t2", "name": "fold", "input": {}},
    ]
    assert reply["stop_reason"] == "tool_use"
    assert sum(v for k, v in reply["usage"].items() if "input" in k) == 50


@pytest.mark.parametrize(
    ("reason", "stop", "told"),
    [
        (FinishReason.STOP, None, "end_turn"),
        (FinishReason.LENGTH, None, "max_tokens"),
        (FinishReason.STOP, "END", "stop_sequence"),
    ],
)
async def test_why_it_ended(
    served: Served, reason: FinishReason, stop: str | None, told: str
) -> None:
    end = Finished(reason, Usage(5, 1), Timings(), stop)
    served.host.script = lambda _: [Started(5, 4096), Text("x"), end]
    whole = (await served.http.post("/v1/messages", json=body())).json()
    assert (whole["stop_reason"], whole["stop_sequence"]) == (told, stop)
    assert (await streamed(served))[-2]["delta"] == {"stop_reason": told, "stop_sequence": stop}


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("stream", [False, True])
async def test_an_overflow_is_told_in_the_words_clients_know(served: Served, stream: bool) -> None:
    served.host.script = lambda _: [ContextOverflow(5000, 4096)]
    reply = await served.http.post("/v1/messages", json=body(stream=stream))
    assert reply.status_code == 400
    assert reply.json() == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 5000 tokens > 4096 maximum",
        },
    }


async def test_a_fault_in_mid_stream_is_an_event(served: Served) -> None:
    served.host.script = lambda _: [Started(5, 4096), Text("x"), EngineFailed("It died.")]
    last = (await streamed(served))[-1]
    assert last == {"type": "error", "error": {"type": "api_error", "message": "It died."}}


async def test_other_errors_have_anthropics_names(served: Served) -> None:
    reply = await served.http.post("/v1/messages", json=body(model="nobody"))
    assert reply.status_code == 404
    assert reply.json()["error"]["type"] == "not_found_error"


async def test_a_slow_answer_pings() -> None:
    async with serving(pace=Pace(commit_after_s=0.02, keepalive_s=0.05)) as served:
        served.host.script = lambda _: [0.3, Started(7, 4096), 0.3, Text("x"), _END]
        events = [e["type"] for e in await streamed(served)]
    assert events[0] == "message_start"
    assert events.count("ping") >= 5


_END = Finished(FinishReason.STOP, Usage(7, 1), Timings())


async def test_who_leaves_is_noticed(served: Served) -> None:
    served.host.script = lambda _: [Started(7, 4096), 30.0, _END]
    with pytest.raises(httpx.ReadTimeout):
        await served.http.post("/v1/messages", json=body(), timeout=0.3)
    async with asyncio.timeout(5):
        while not served.host.cancelled:  # noqa: ASYNC110 - it lies in another task
            await asyncio.sleep(0.01)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "name", "input", "id", "thinking"]),
            inner | st.sampled_from(["text", "user", "tool_use", "tool_result", "thinking"]),
            max_size=4,
        )
    ),
    max_leaves=10,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    field=st.sampled_from(
        ["messages", "system", "tools", "tool_choice", "thinking", "output_config", "max_tokens"]
    ),
    value=JSON,
)
async def test_no_body_is_an_error_of_ours(served: Served, field: str, value: Any) -> None:
    reply = await served.http.post("/v1/messages", json=body(**{field: value}))
    assert reply.status_code in (200, 400)
