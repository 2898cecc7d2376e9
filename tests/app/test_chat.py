"""Chat completions: what is asked reaches the host, and what it says reaches the client."""

from typing import Any

import openai
import pytest

from models.chat import (
    Conversation,
    Finished,
    FinishReason,
    Limits,
    Logprobs,
    Reasoning,
    Request,
    Role,
    Sampling,
    Started,
    Text,
    Timings,
    TokenLogprob,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolChoice,
    ToolMode,
    Usage,
)
from tests.app.conftest import Served
from tests.app.scripted import MODEL, Step, answer, finished


async def asked(served: Served, **fields: Any) -> Request:
    reply = await served.chat(**fields)
    assert reply.status_code == 200, reply.text
    return served.host.requests[-1]


async def refused(served: Served, **fields: Any) -> dict[str, Any]:
    reply = await served.chat(**fields)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert not served.host.requests
    return error


async def test_an_answer_has_every_part(served: Served) -> None:
    reply = (await served.chat()).json()
    assert reply["object"] == "chat.completion"
    assert reply["model"] == MODEL
    choice = reply["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "Hello there", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"] is None
    assert reply["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert reply["timings"]["prefill_ms"] == 2.0
    assert reply["timings"]["cached_tokens"] == 3


async def test_without_fields_the_defaults_apply(served: Served) -> None:
    request = await asked(served)
    assert request.sampling == Sampling()
    assert request.limits == Limits()
    assert request.constraint is None
    assert request.logprobs is None


async def test_every_field_reaches_the_host(served: Served) -> None:
    request = await asked(
        served,
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        presence_penalty=-1,
        frequency_penalty=2,
        repetition_penalty=1.1,
        logit_bias={"42": -100, "7": 1.5},
        seed=-7,
        stop=["a", "b"],
        max_tokens=50,
        max_completion_tokens=5.0,
        logprobs=True,
        top_logprobs=3,
        user="u",
        store=False,
        metadata={},
        reasoning_effort="low",
        parallel_tool_calls=True,
        nonsense={"a": 1},
    )
    assert request.sampling == Sampling(
        temperature=0,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        presence_penalty=-1,
        frequency_penalty=2,
        repeat_penalty=1.1,
        logit_bias=((42, -100.0), (7, 1.5)),
        seed=2**63 - 7,
    )
    assert request.limits == Limits(5, ("a", "b"))
    assert request.logprobs == 3


async def test_nulls_are_as_if_left_out(served: Served) -> None:
    names = ["temperature", "top_p", "n", "stop", "seed", "max_tokens", "tools", "tool_choice"]
    names += ["response_format", "logprobs", "top_logprobs", "stream", "stream_options"]
    nulls = dict.fromkeys([*names, "logit_bias", "presence_penalty", "functions"])
    assert (await asked(served, **nulls)).sampling == Sampling()


async def test_a_very_large_limit_is_fine(served: Served) -> None:
    assert (await asked(served, max_tokens=10**12)).limits.max_tokens == 2**31 - 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model"),
    ({"model": 5}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages.0"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "user"}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "messages.0.tool_calls"),
    ({"temperature": True}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 5.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.01}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_completion_tokens": True}, "max_completion_tokens"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop.1"),
    ({"stop": [5]}, "stop.0"),
    ({"stop": {"a": 1}}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"seed": 2**70}, "seed"),
    ({"logit_bias": {"x": 1}}, "logit_bias.x"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": 5}, "logprobs"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
    ({"tools": [{"type": "custom"}]}, "tools.0.type"),
    ({"tools": [{"type": "function"}]}, "tools.0.function"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools.0.function.name"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}},
        "response_format.json_schema.schema",
    ),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(case[0])[:60] for case in REFUSED])
async def test_a_wrong_field_is_named(served: Served, fields: dict[str, Any], param: str) -> None:
    error = await refused(served, **fields)
    assert error["param"] == param
    assert param in error["message"]


async def test_an_image_is_refused_by_its_place(served: Served) -> None:
    parts = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    error = await refused(served, messages=[{"role": "user", "content": parts}])
    assert error["param"] == "messages.0.content.1"
    assert "image" in error["message"]


async def test_every_kind_of_message_arrives(served: Served) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    request = await asked(
        served,
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "Be"}]},
            {"role": "user", "content": "Go", "name": "ann"},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "r"},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "ok"}]},
            {"role": "assistant", "content": "", "refusal": None, "reasoning": "why"},
        ],
    )
    assert isinstance(request.prompt, Conversation)
    system, user, assistant, tool, last = request.prompt.messages
    assert (system.role, system.content) == (Role.SYSTEM, "Be")
    assert user.name == "ann"
    assert assistant.content == ""
    assert assistant.reasoning == "r"
    assert assistant.tool_calls[0].arguments == '{"a":1}'
    assert (tool.role, tool.content, tool.tool_call_id) == (Role.TOOL, "ok", "c1")
    assert last.reasoning == "why"


TOOL = {"type": "function", "function": {"name": "f", "description": "d"}}


async def test_tools_are_offered_unless_the_choice_is_none(served: Served) -> None:
    for choice, count in (("auto", 1), (None, 1), ("none", 0)):
        request = await asked(served, tools=[TOOL], tool_choice=choice)
        assert isinstance(request.prompt, Conversation)
        assert len(request.prompt.tools) == count


async def test_a_stream_has_its_shape(served: Served) -> None:
    stream = await served.stream()
    assert stream.headers["cache-control"] == "no-cache"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.data[-1] == "[DONE]"
    first, *_, last = stream.chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["timings"]["decode_ms"] == 3.0
    assert stream.text() == "Hello there"
    assert stream.finishes() == ["stop"]
    assert {chunk["object"] for chunk in stream.chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in stream.chunks}) == 1
    assert not any("usage" in chunk for chunk in stream.chunks)


async def test_usage_is_the_last_chunk_only_when_asked_for(served: Served) -> None:
    stream = await served.stream(stream_options={"include_usage": True})
    *others, last = stream.chunks
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 7
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in others)


async def test_choices_run_at_once_with_seeds_of_their_own(served: Served) -> None:
    served.host.script = lambda r: answer(f"seed {r.sampling.seed}")(r)
    reply = (await served.chat(n=3, seed=10)).json()
    assert [c["message"]["content"] for c in reply["choices"]] == ["seed 10", "seed 11", "seed 12"]
    assert reply["usage"]["prompt_tokens"] == 5
    assert reply["usage"]["completion_tokens"] == 3
    stream = await served.stream(n=3, seed=10, stream_options={"include_usage": True})
    assert [stream.text(i) for i in range(3)] == ["seed 10", "seed 11", "seed 12"]
    assert [stream.finishes(i) for i in range(3)] == [["stop"]] * 3
    assert stream.chunks[-1]["usage"]["completion_tokens"] == 3


TOKENS = (
    TokenLogprob(b"H\xc3", -0.5, ((b"H\xc3", -0.5), (b"x", -1.0))),
    TokenLogprob(b"\xa9", float("-inf")),
)


def with_logprobs(request: Request) -> list[Step]:
    eos = TokenLogprob(b"<end>", -0.1)
    head: list[Step] = [Started(5, 4096), Logprobs(TOKENS), Text("Hé"), Logprobs((eos,))]
    return [*head, finished(3)]


async def test_logprobs_have_their_shape_streamed_and_whole(served: Served) -> None:
    served.host.script = with_logprobs
    reply = (await served.chat(logprobs=True, top_logprobs=2)).json()
    content = reply["choices"][0]["logprobs"]["content"]
    first, second, last = content
    assert first["token"] == "H\ufffd"
    assert first["bytes"] == [72, 0xC3]
    assert [top["token"] for top in first["top_logprobs"]] == ["H\ufffd", "x"]
    assert second["top_logprobs"] == []
    assert second["logprob"] == -9999.0
    assert last["token"] == "<end>"
    stream = await served.stream(logprobs=True, top_logprobs=2)
    streamed = [e for c in stream.choices if c["logprobs"] for e in c["logprobs"]["content"]]
    assert streamed == content


async def test_reasoning_and_tool_calls_are_told_apart(served: Served) -> None:
    steps: list[Step] = [
        Started(5, 4096),
        Reasoning("Hm."),
        ToolCallStart(0, "call_1", "f"),
        ToolCallDelta(0, '{"a"'),
        ToolCallDelta(0, ":1}"),
        ToolCallEnd(0),
        Finished(FinishReason.TOOL_CALLS, Usage(5, 6, 0, 2), Timings()),
    ]
    served.host.script = lambda request: steps
    reply = (await served.chat(tools=[TOOL])).json()
    message = reply["choices"][0]["message"]
    assert message["content"] is None
    assert message["reasoning_content"] == "Hm."
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 2
    stream = await served.stream(tools=[TOOL])
    deltas = [part for c in stream.choices for part in c["delta"].get("tool_calls", [])]
    assert deltas[0]["id"] == "call_1"
    assert deltas[0]["function"]["name"] == "f"
    assert "".join(part["function"]["arguments"] for part in deltas) == '{"a":1}'
    assert all("id" not in part for part in deltas[1:])
    assert stream.finishes() == ["tool_calls"]


async def test_logprobs_come_beside_tools_streamed_too(served: Served) -> None:
    tools = [{"type": "function", "function": {"name": "fold"}}]
    assert (await served.chat(tools=tools, logprobs=True, stream=True)).status_code == 200
    request = served.host.requests[-1]
    assert isinstance(request.prompt, Conversation)
    assert (len(request.prompt.tools), request.logprobs) == (1, 0)


async def test_progress_is_told_when_asked_for(served: Served) -> None:
    stream = await served.stream(return_progress=True)
    progress = [c["prompt_progress"] for c in stream.chunks if "prompt_progress" in c]
    assert progress == [{"total": 5, "cache": 3, "processed": 5}]
    assert stream.text() == "Hello there"


async def test_the_sdk_people_use_understands_it(served: Served) -> None:
    served.host.script = with_logprobs
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as sdk:
        whole = await sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], logprobs=True
        )
        assert whole.choices[0].message.content == "Hé"
        assert whole.choices[0].logprobs
        text = ""
        async with await sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], stream=True
        ) as stream:
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
        assert text == "Hé"
        assert MODEL in [model.id async for model in sdk.models.list()]
        with pytest.raises(openai.BadRequestError) as error:
            await sdk.chat.completions.create(model=MODEL, messages=[])
        assert error.value.param == "messages"


@pytest.mark.parametrize(
    ("sent", "choice"),
    [
        ({}, ToolChoice()),
        ({"parallel_tool_calls": False}, ToolChoice(parallel=False)),
        ({"tool_choice": "required"}, ToolChoice(ToolMode.REQUIRED)),
        ({"tool_choice": "any"}, ToolChoice(ToolMode.REQUIRED)),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            ToolChoice(ToolMode.REQUIRED, "f"),
        ),
        ({"tool_choice": {"type": "function", "name": "f"}}, ToolChoice(ToolMode.REQUIRED, "f")),
        ({"tool_choice": {"type": "none"}}, ToolChoice(ToolMode.NONE)),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required"}}},
            ToolChoice(ToolMode.REQUIRED),
        ),
    ],
)
async def test_a_tool_choice_in_any_spelling(
    served: Served, sent: dict[str, Any], choice: ToolChoice
) -> None:
    assert (await asked(served, tools=[TOOL], **sent)).tool_choice == choice


@pytest.mark.parametrize(
    "choice", ["maybe", 3, {"type": "function"}, {"type": 1}, {"function": {"name": "other"}}, []]
)
async def test_a_tool_choice_that_is_none_is_refused(served: Served, choice: Any) -> None:
    reply = await served.chat(tools=[TOOL], tool_choice=choice)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("tool_choice")


async def test_the_template_is_told_how_much_to_think(served: Served) -> None:
    request = await asked(served, reasoning_effort="none")
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.template_args == {"reasoning_effort": "none", "enable_thinking": False}
    request = await asked(
        served, reasoning_effort="high", chat_template_kwargs={"enable_thinking": False}
    )
    assert isinstance(request.prompt, Conversation)
    assert request.prompt.template_args == {"reasoning_effort": "high", "enable_thinking": False}
