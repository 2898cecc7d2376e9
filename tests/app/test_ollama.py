"""Ollama's dialect: answers in lines, and what clients of it ask of a model."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

import pytest

from app.api.reply import Pace
from models.chat import (
    Constraint,
    ConstraintKind,
    Conversation,
    FinishReason,
    Limits,
    Loading,
    Logprobs,
    Message,
    RawPrompt,
    Reasoning,
    Request,
    Role,
    Sampling,
    Started,
    Text,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from models.errors import ContextOverflow, EngineFailed
from tests.app.conftest import Served, serving, until
from tests.app.scripted import MODEL, ScriptedHost, Step, finished

Line = dict[str, Any]
USER: Line = {"role": "user", "content": "Hi"}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


async def lines(served: Served, path: str = "/api/chat", **fields: Any) -> list[Line]:
    body = {"model": MODEL, "messages": [USER], "prompt": "Hi", **fields}
    reply = await served.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(text) for text in reply.text.splitlines()]


async def whole(served: Served, path: str = "/api/chat", **fields: Any) -> Line:
    body = {"model": MODEL, "messages": [USER], "prompt": "Hi", "stream": False, **fields}
    reply = await served.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    return reply.json()


async def asked(served: Served, path: str = "/api/chat", **fields: Any) -> Request:
    await whole(served, path, **fields)
    return served.host.requests[-1]


async def conversation(served: Served, *messages: Any, **fields: Any) -> Conversation:
    prompt = (await asked(served, messages=list(messages), **fields)).prompt
    assert isinstance(prompt, Conversation)
    return prompt


async def refused(served: Served, path: str = "/api/chat", **fields: Any) -> str:
    body = {"model": MODEL, "messages": [USER], "prompt": "Hi", **fields}
    reply = await served.http.post(path, json=body)
    assert reply.status_code == 400, reply.text
    assert set(reply.json()) == {"error"}
    assert not served.host.requests
    return reply.json()["error"]


# ---------------------------------------------------------------------- how an answer is written


async def test_a_chat_streams_without_being_asked_to(served: Served) -> None:
    first, second, last = await lines(served)
    assert first["message"] == {"role": "assistant", "content": "Hello"}
    assert second["message"] == {"role": "assistant", "content": " there"}
    assert (first["model"], first["done"]) == (MODEL, False)
    assert datetime.fromisoformat(first["created_at"]).tzinfo
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["done"], last["done_reason"]) == (True, "stop")


async def test_the_last_line_counts_tokens_and_nanoseconds(served: Served) -> None:
    last = (await lines(served))[-1]
    assert (last["prompt_eval_count"], last["eval_count"]) == (5, 2)
    assert (last["prompt_eval_duration"], last["eval_duration"]) == (2_000_000, 3_000_000)
    assert 0 < last["total_duration"] < 10**10
    assert last["load_duration"] == 0


async def test_loading_counts_as_loading(served: Served) -> None:
    served.host.script = lambda request: [
        Loading(0.1),
        0.05,
        Loading(0.9),
        Started(5, 9),
        finished(),
    ]
    last = (await lines(served))[-1]
    assert 0.04e9 < last["load_duration"] <= last["total_duration"]


async def test_a_chat_can_come_as_a_whole(served: Served) -> None:
    reply = await whole(served)
    assert reply["message"] == {"role": "assistant", "content": "Hello there"}
    assert (reply["done"], reply["done_reason"], reply["eval_count"]) == (True, "stop", 2)


async def test_a_generation_has_a_response_instead_of_a_message(served: Served) -> None:
    first, second, last = await lines(served, "/api/generate")
    assert (first["response"], second["response"], last["response"]) == ("Hello", " there", "")
    assert "message" not in first
    assert (await whole(served, "/api/generate"))["response"] == "Hello there"


async def test_an_answer_that_was_cut_says_so(served: Served) -> None:
    served.host.script = lambda request: [finished(reason=FinishReason.LENGTH)]
    assert (await lines(served))[-1]["done_reason"] == "length"
    assert (await whole(served))["done_reason"] == "length"


async def test_thinking_comes_apart_from_the_answer(served: Served) -> None:
    served.host.script = lambda request: [Reasoning("Hm"), Reasoning("."), Text("Yes"), finished()]
    streamed = await lines(served)
    assert [line["message"].get("thinking") for line in streamed] == ["Hm", ".", None, None]
    assert (await whole(served))["message"]["thinking"] == "Hm."
    assert (await whole(served, "/api/generate"))["thinking"] == "Hm."
    assert (await lines(served, "/api/generate"))[0]["thinking"] == "Hm"


def calls(*arguments: str, end: bool = True) -> list[Step]:
    steps: list[Step] = []
    for index, text in enumerate(arguments):
        steps.append(ToolCallStart(index, f"call_{index}", "weather"))
        steps += [ToolCallDelta(index, text[:3]), ToolCallDelta(index, text[3:])]
        steps += [ToolCallEnd(index)] if end else []
    return [*steps, finished(reason=FinishReason.TOOL_CALLS if end else FinishReason.LENGTH)]


async def test_tool_calls_come_whole_with_their_arguments_as_objects(served: Served) -> None:
    served.host.script = lambda request: calls('{"city": "Bern"}', "{}")
    first, second, last = await lines(served, tools=[WEATHER])
    assert first["message"]["tool_calls"] == [
        {"id": "call_0", "function": {"index": 0, "name": "weather", "arguments": {"city": "Bern"}}}
    ]
    assert second["message"]["tool_calls"][0]["function"]["index"] == 1
    assert last["done_reason"] == "stop"
    message = (await whole(served, tools=[WEATHER]))["message"]
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == [
        {"city": "Bern"},
        {},
    ]


async def test_a_call_that_was_cut_is_shown_as_text(served: Served) -> None:
    served.host.script = lambda request: calls('{"city": "Be', end=False)
    first, last = await lines(served, tools=[WEATHER])
    assert first["message"] == {"role": "assistant", "content": '{"city": "Be'}
    assert last["done_reason"] == "length"
    assert (await whole(served, tools=[WEATHER]))["message"]["content"] == '{"city": "Be'


async def test_logprobs_come_with_their_text(served: Served) -> None:
    token = TokenLogprob(b"Hi", -0.5, ((b"Hi", -0.5), (b"Ho", -1.0)))
    served.host.script = lambda request: [Logprobs((token,)), Text("Hi"), finished(1)]
    first, last = await lines(served, logprobs=True, top_logprobs=2)
    assert served.host.requests[-1].logprobs == 2
    entry = first["logprobs"][0]
    assert (entry["token"], entry["logprob"], len(entry["top_logprobs"])) == ("Hi", -0.5, 2)
    assert "logprobs" not in last
    assert (await whole(served, logprobs=True))["logprobs"][0]["token"] == "Hi"


async def test_lines_come_as_they_are_made(served: Served) -> None:
    served.host.script = lambda request: [Started(5, 9), Text("a"), 0.1, Text("b"), finished()]
    body = {"model": MODEL, "messages": [USER]}
    came: list[float] = []

    async def read() -> AsyncGenerator[Line, None]:
        async with served.http.stream("POST", "/api/chat", json=body) as reply:
            async for text in reply.aiter_lines():
                came.append(asyncio.get_running_loop().time())
                yield json.loads(text)

    assert [line["message"]["content"] async for line in read()] == ["a", "b", ""]
    assert came[1] - came[0] > 0.05


async def test_a_silence_is_filled_with_empty_answers() -> None:
    host = ScriptedHost(lambda request: [Started(5, 9), 0.3, Text("Hi"), finished()])
    async with serving(host, pace=Pace(0.02, 0.05)) as served:
        streamed = await lines(served)
    empty = [line for line in streamed if line["message"]["content"] == ""]
    assert len(empty) >= 4
    assert all(line["message"]["role"] == "assistant" for line in empty)
    assert [line["done"] for line in streamed] == [False] * (len(streamed) - 1) + [True]


# ---------------------------------------------------------------------- what reaches the model


async def test_without_options_the_defaults_apply(served: Served) -> None:
    request = await asked(served)
    assert (request.sampling, request.limits) == (Sampling(), Limits())
    assert request.prompt == Conversation((Message(Role.USER, "Hi"),))


async def test_options_reach_the_model(served: Served) -> None:
    options = {
        "temperature": 0,
        "top_k": 20,
        "top_p": 0.8,
        "min_p": 0.1,
        "seed": 7,
        "num_predict": 50,
        "stop": ["a", "b"],
        "repeat_penalty": 1.1,
        "presence_penalty": 1.5,
        "frequency_penalty": -0.5,
        "num_gpu": 99,
        "mirostat": 0,
        "typical_p": 0.7,
    }
    for path in ("/api/chat", "/api/generate"):
        request = await asked(served, path, options=options, keep_alive="5m")
        assert request.limits == Limits(50, ("a", "b"))
        assert request.sampling == Sampling(0, 20, 0.8, 0.1, 1.1, 1.5, -0.5, seed=7)


@pytest.mark.parametrize("wanted", [-1, -2, 0, None])
async def test_no_limit_has_many_spellings(served: Served, wanted: int | None) -> None:
    assert (await asked(served, options={"num_predict": wanted})).limits.max_tokens is None


async def test_a_context_larger_than_is_served_is_noted(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "runner.http"):
        await asked(served, options={"num_ctx": 4096})
        assert not caplog.records
        await asked(served, options={"num_ctx": 8192})
        await asked(served, options={"num_ctx": 8192})
    assert caplog.text.count("num_ctx is 8192, and 4096 tokens are served") == 1


async def test_a_format_is_a_constraint(served: Served) -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    request = await asked(served, format=schema)
    assert request.constraint == Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    request = await asked(served, "/api/generate", format="json")
    assert request.constraint == Constraint(ConstraintKind.JSON_OBJECT)
    for nothing in ("", None):
        assert (await asked(served, format=nothing)).constraint is None


async def test_thinking_is_asked_of_the_template(served: Served) -> None:
    wishes: list[tuple[Any, dict[str, Any]]] = [
        (True, {"enable_thinking": True}),
        (False, {"enable_thinking": False}),
        ("low", {"enable_thinking": True, "reasoning_effort": "low"}),
        (None, {}),
    ]
    for think, args in wishes:
        for path in ("/api/chat", "/api/generate"):
            prompt = (await asked(served, path, think=think)).prompt
            assert isinstance(prompt, Conversation)
            assert prompt.template_args == args


async def test_a_generation_is_a_turn_of_the_user(served: Served) -> None:
    request = await asked(served, "/api/generate", prompt="Why?", system="Be brief.")
    turns = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Why?"))
    assert request.prompt == Conversation(turns)


async def test_a_raw_prompt_is_taken_as_it_is(served: Served) -> None:
    request = await asked(served, "/api/generate", prompt="<|user|>Why?", raw=True)
    assert request.prompt == RawPrompt("<|user|>Why?")


async def test_another_template_is_noted_and_not_used(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    request = await asked(served, "/api/generate", prompt="Why?", template="{{ .Prompt }}")
    assert request.prompt == Conversation((Message(Role.USER, "Why?"),))
    assert "template is ignored" in caplog.text


async def test_a_conversation_with_tools_keeps_calls_and_replies_together(served: Served) -> None:
    def call(city: str, name: str = "weather") -> Line:
        return {"function": {"name": name, "arguments": {"city": city}}}

    prompt = await conversation(
        served,
        USER,
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm.",
            "tool_calls": [call("Bern"), call("Rome", "time")],
        },
        {"role": "tool", "tool_name": "time", "content": "noon"},
        {"role": "tool", "content": "sun"},
        {"role": "assistant", "tool_calls": [call("Oslo")]},
        {"role": "tool", "tool_name": "weather", "content": "rain"},
        tools=[WEATHER],
    )
    _, first, noon, sun, second, rain = prompt.messages
    assert first.reasoning == "Hm."
    assert first.tool_calls[0] == ToolCall(first.tool_calls[0].id, "weather", '{"city": "Bern"}')
    assert (noon.name, noon.tool_call_id) == ("time", first.tool_calls[1].id)
    assert sun.tool_call_id == first.tool_calls[0].id
    assert rain.tool_call_id == second.tool_calls[0].id
    ids = [one.id for turn in (first, second) for one in turn.tool_calls]
    assert len(set(ids)) == 3
    assert prompt.tools[0].name == "weather"


REFUSED: list[tuple[str, Line, str]] = [
    ("/api/chat", {"model": ""}, "model"),
    ("/api/chat", {"messages": ["hi"]}, "messages.0"),
    ("/api/chat", {"messages": [{"role": "robot", "content": ""}]}, "messages.0.role"),
    ("/api/chat", {"messages": [{**USER, "images": ["aGk="]}]}, "messages.0.images"),
    ("/api/chat", {"options": {"temperature": "hot"}}, "options.temperature"),
    ("/api/chat", {"options": {"num_predict": 1.5}}, "options.num_predict"),
    ("/api/chat", {"options": []}, "options"),
    ("/api/chat", {"format": "xml"}, "format"),
    ("/api/chat", {"format": 5}, "format"),
    ("/api/chat", {"think": "a lot"}, "think"),
    ("/api/chat", {"think": 5}, "think"),
    ("/api/chat", {"tools": [{"type": "function"}]}, "tools.0.function"),
    ("/api/chat", {"top_logprobs": 2}, "top_logprobs"),
    ("/api/chat", {"keep_alive": []}, "keep_alive"),
    ("/api/generate", {"prompt": 5}, "prompt"),
    ("/api/generate", {"images": ["aGk="]}, "images"),
    ("/api/generate", {"context": [1, 2]}, "context"),
    ("/api/generate", {"raw": True, "system": "s"}, "system"),
    ("/api/generate", {"raw": True, "template": "t"}, "template"),
]


@pytest.mark.parametrize(("path", "fields", "named"), REFUSED)
async def test_what_is_wrong_is_named(served: Served, path: str, fields: Line, named: str) -> None:
    assert named in await refused(served, path, **fields)


# ---------------------------------------------------------------------- errors


async def test_an_early_error_is_a_status(served: Served) -> None:
    served.host.script = lambda request: [ContextOverflow(5000, 4096)]
    for stream in (True, False):
        body = {"model": MODEL, "messages": [USER], "stream": stream}
        reply = await served.http.post("/api/chat", json=body)
        assert reply.status_code == 400
        assert "4096 tokens" in reply.json()["error"]
    reply = await served.http.post("/api/chat", json={"model": "no", "messages": [USER]})
    assert (reply.status_code, list(reply.json())) == (404, ["error"])


async def test_a_late_error_is_the_last_line(served: Served) -> None:
    served.host.script = lambda request: [Started(5, 9), Text("Hel"), EngineFailed("It died.")]
    first, last = await lines(served)
    assert first["message"]["content"] == "Hel"
    assert last == {"error": "It died."}


async def test_who_leaves_is_not_answered(served: Served) -> None:
    served.host.script = lambda request: [Started(5, 9), Text("a"), 60.0, finished()]
    body = {"model": MODEL, "messages": [USER]}
    async with served.http.stream("POST", "/api/chat", json=body) as reply:
        async for _ in reply.aiter_lines():
            break
    await until(lambda: served.host.cancelled == 1)
