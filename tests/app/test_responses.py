"""Responses: items become the one request, and its answer becomes items again, event by event."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.api.reply import Pace
from models.chat import (
    Constraint,
    ConstraintKind,
    Conversation,
    Finished,
    FinishReason,
    Limits,
    Loading,
    Logprobs,
    Message,
    Prefill,
    Priority,
    Reasoning,
    Request,
    Role,
    Sampling,
    Started,
    Text,
    Timings,
    TokenLogprob,
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
from tests.app.scripted import MODEL, ScriptedHost, Step, finished

PATH = "/v1/responses"
CALLED = FinishReason.TOOL_CALLS


async def create(served: Served, **fields: Any) -> dict[str, Any]:
    reply = await served.http.post(PATH, json={"model": MODEL, "input": "Hi", **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def asked(served: Served, **fields: Any) -> Request:
    await create(served, **fields)
    return served.host.requests[-1]


async def turns(served: Served, *items: Any, **fields: Any) -> tuple[Message, ...]:
    return conversation(await asked(served, input=list(items), **fields)).messages


def conversation(request: Request) -> Conversation:
    assert isinstance(request.prompt, Conversation)
    return request.prompt


async def events(served: Served, **fields: Any) -> list[dict[str, Any]]:
    """A stream's events, with what holds in every stream."""
    body = {"model": MODEL, "input": "Hi", "stream": True, **fields}
    reply = await served.http.post(PATH, json=body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in reply.text.split("\n\n") if block]
    told = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name.removeprefix("event: ") for name, _ in blocks] == [e["type"] for e in told]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [event["type"] for event in told[:2]] == ["response.created", "response.in_progress"]
    return told


def kinds(told: Sequence[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


def joined(told: Sequence[dict[str, Any]], kind: str) -> str:
    return "".join(event["delta"] for event in told if event["type"] == f"response.{kind}.delta")


def script(*steps: Step) -> ScriptedHost:
    return ScriptedHost(lambda request: [Started(5, 4096), *steps])


def call(index: int, name: str, *parts: str, ends: bool = True) -> list[Step]:
    deltas = [ToolCallDelta(index, part) for part in parts]
    return [ToolCallStart(index, f"c{index}", name), *deltas, *([ToolCallEnd(index)] * ends)]


# ------------------------------------------------------------------------------ what is asked for


async def test_a_text_is_one_turn_of_the_user_after_the_instructions(served: Served) -> None:
    request = await asked(served, input="Hi", instructions="Be brief.")
    said = (Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "Hi"))
    assert request.prompt == Conversation(said)
    assert request.sampling == Sampling()
    assert request.limits == Limits()
    assert request.tool_choice == ToolChoice()
    assert request.logprobs is None


async def test_every_role_and_kind_of_text_is_taken_with_ids_and_without(served: Served) -> None:
    said = await turns(
        served,
        {"role": "system", "content": "a"},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "user", "content": "b"},
        {"role": "developer", "content": [{"type": "input_text", "text": "c"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "d", "logprobs": []}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "e"}]},
        {"role": "user", "content": [{"type": "input_text", "text": t} for t in ("f", "g")]},
    )
    assert [(m.role.value, m.content) for m in said] == [
        ("system", "a"),
        ("user", "b"),
        ("system", "c"),
        ("assistant", "d"),
        ("assistant", "e"),
        ("user", "f\ng"),
    ]


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}
SAID = {"role": "assistant", "content": "Let me see."}
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
CUSTOM = {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": 'a "b"'}
RETURNED = {"type": "function_call_output", "call_id": "c1", "output": "3"}
PARTS = [{"type": "input_text", "text": "4"}, {"type": "output_text", "text": "5"}]


async def test_what_an_assistant_thinks_says_and_calls_in_a_turn_is_one_message(
    served: Served,
) -> None:
    thoughts = [{"type": "reasoning_text", "text": "Hm."}]
    said = await turns(
        served,
        {"role": "user", "content": "Go"},
        THOUGHT | {"content": thoughts},
        SAID,
        CALL | {"id": "fc_1", "status": "completed"},
        CUSTOM,
        RETURNED,
        {"type": "custom_tool_call_output", "call_id": "c2", "output": PARTS},
        THOUGHT | {"summary": [{"type": "summary_text", "text": "In short."}]},
        CALL | {"call_id": "c3", "arguments": {"a": "ü"}},
        RETURNED | {"call_id": "c3", "output": None},
    )
    calls = (ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "patch", '{"input": "a \\"b\\""}'))
    assert said == (
        Message(Role.USER, "Go"),
        Message(Role.ASSISTANT, "Let me see.", reasoning="Hm.", tool_calls=calls),
        Message(Role.TOOL, "3", tool_call_id="c1"),
        Message(Role.TOOL, "4\n5", tool_call_id="c2"),
        Message(
            Role.ASSISTANT,
            "",
            reasoning="In short.",
            tool_calls=(ToolCall("c3", "f", '{"a": "ü"}'),),
        ),
        Message(Role.TOOL, "", tool_call_id="c3"),
    )


async def test_reasoning_belongs_to_what_follows_it(served: Served) -> None:
    def thought(text: str) -> dict[str, Any]:
        return THOUGHT | {"content": [{"type": "reasoning_text", "text": text}]}

    said = await turns(served, thought("1"), SAID, thought("2"), SAID, thought("3"), CALL)
    assert [(m.reasoning, len(m.tool_calls)) for m in said] == [("1", 0), ("2\n\n3", 1)]
    said = await turns(served, thought("1"), {"role": "user", "content": "x"}, thought("2"))
    assert [(m.role, m.reasoning) for m in said] == [(Role.ASSISTANT, "1"), (Role.USER, None)]
    said = await turns(served, THOUGHT, SAID)  # what is encrypted is nothing to us
    assert said == (Message(Role.ASSISTANT, "Let me see."),)


async def test_unknown_items_and_tools_are_ignored_with_one_warning(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    items = [
        {"type": "local_shell_call", "id": "x", "action": {}},
        {"role": "user", "content": "Hi"},
        {"type": "web_search_call", "id": "y"},
    ]
    tools = [{"type": "web_search"}, {"type": "mcp", "server_label": "s"}, FUNCTION]
    await asked(served, input=items, tools=tools)
    request = await asked(served, input=items, tools=tools)
    assert conversation(request).messages == (Message(Role.USER, "Hi"),)
    assert [tool.name for tool in conversation(request).tools] == ["f"]
    for kind in ("local_shell_call", "web_search_call", "web_search'", "mcp"):
        assert caplog.text.count(kind) == 1


async def test_every_field_reaches_the_host(served: Served) -> None:
    request = await asked(
        served,
        temperature=0,
        top_p=0.5,
        seed=7,
        max_output_tokens=5.0,
        top_logprobs=3,
        include=["message.output_text.logprobs", "reasoning.encrypted_content"],
        parallel_tool_calls=False,
        reasoning={"effort": "low", "summary": "auto"},
        service_tier="flex",
        store=False,
        truncation="auto",
        metadata={"a": "b"},
        user="u",
        prompt_cache_key="k",
        client_metadata={"c": "d"},
        stream_options={"include_obfuscation": False},
        nonsense={"a": 1},
    )
    assert request.sampling == Sampling(temperature=0, top_p=0.5, seed=7)
    assert request.limits == Limits(5)
    assert request.logprobs == 3
    assert request.tool_choice == ToolChoice(parallel=False)
    assert request.priority is Priority.BATCH
    assert conversation(request).template_args == {"reasoning_effort": "low"}


@pytest.mark.parametrize("effort", ["none", "minimal"])
async def test_without_effort_there_is_no_thinking(served: Served, effort: str) -> None:
    args = conversation(await asked(served, reasoning={"effort": effort})).template_args
    assert args == {"reasoning_effort": effort, "enable_thinking": False}


async def test_nulls_are_as_if_left_out(served: Served) -> None:
    names = ["instructions", "max_output_tokens", "tools", "tool_choice", "text", "reasoning"]
    names += ["include", "previous_response_id", "metadata", "top_logprobs", "store", "stream"]
    names += ["parallel_tool_calls", "background", "conversation", "prompt", "truncation"]
    request = await asked(served, **dict.fromkeys(names))
    assert request == Request(MODEL, Conversation((Message(Role.USER, "Hi"),)))


SCHEMA = {"type": "object", "properties": {"b": {"const": 1}, "a": {"const": "ü"}}}
FORMATS: list[tuple[dict[str, Any], Constraint | None]] = [
    ({"type": "text"}, None),
    ({"type": "json_object"}, Constraint(ConstraintKind.JSON_OBJECT)),
    (
        {"type": "json_schema", "name": "f", "strict": True, "schema": SCHEMA},
        Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA, ensure_ascii=False)),
    ),
]


@pytest.mark.parametrize(("format", "constraint"), FORMATS)
async def test_a_format_constrains(
    served: Served, format: dict[str, Any], constraint: Constraint | None
) -> None:
    text = {"format": format, "verbosity": "low"}
    assert (await asked(served, text=text)).constraint == constraint


# ------------------------------------------------------------------------------------------ tools

FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "patch", "description": "p"}
SPACE = {"type": "namespace", "name": "files", "description": "", "tools": [FUNCTION, PATCH]}


async def test_tools_are_flattened_into_names_of_their_own(served: Served) -> None:
    inner = {"type": "function", "name": "files__f", "strict": True}
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    request = await asked(served, tools=[FUNCTION, SPACE, inner, PATCH | {"format": grammar}])
    tools = {tool.name: tool for tool in conversation(request).tools}
    assert list(tools) == ["f", "files__f", "files__patch", "files__f_2", "patch"]
    assert tools["f"] == Tool("f", "d", {"type": "object"})
    assert tools["files__f_2"].parameters == {"type": "object", "properties": {}}
    assert tools["files__patch"].parameters["required"] == ["input"]
    assert 'start: "x"' in tools["patch"].parameters["properties"]["input"]["description"]


async def test_a_call_in_a_namespace_goes_out_and_comes_back_under_the_same_name() -> None:
    host = script(*call(0, "files__f", "{}"), finished(3, CALLED))
    async with serving(host) as served:
        (item,) = (await create(served, tools=[FUNCTION, SPACE]))["output"]
        assert (item["namespace"], item["name"]) == ("files", "f")
        for tools in ([SPACE], []):  # also when it is no longer offered
            (said,) = await turns(served, item, tools=tools)
            assert said.tool_calls == (ToolCall("c0", "files__f", "{}"),)
        other = SPACE | {"name": "mcp__files__"}
        (said,) = await turns(served, item | {"namespace": "mcp__files__"}, tools=[other])
        assert said.tool_calls[0].name == "mcp__files__f"


CHOICES: list[tuple[Any, ToolChoice, list[str]]] = [
    ("auto", ToolChoice(), ["f", "files__f", "files__patch"]),
    ("none", ToolChoice(ToolMode.NONE), []),
    ("required", ToolChoice(ToolMode.REQUIRED), ["f", "files__f", "files__patch"]),
    (
        {"type": "function", "name": "f"},
        ToolChoice(ToolMode.REQUIRED, "f"),
        ["f", "files__f", "files__patch"],
    ),
    (
        {"type": "function", "name": "f", "namespace": "files"},
        ToolChoice(ToolMode.REQUIRED, "files__f"),
        ["f", "files__f", "files__patch"],
    ),
    (
        {"type": "custom", "name": "patch"},  # the only one of this name
        ToolChoice(ToolMode.REQUIRED, "files__patch"),
        ["f", "files__f", "files__patch"],
    ),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
        ToolChoice(ToolMode.REQUIRED),
        ["f"],
    ),
    (
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
        ToolChoice(),
        [],
    ),
]


@pytest.mark.parametrize(("choice", "wanted", "names"), CHOICES)
async def test_a_choice_of_tools_is_kept_to(
    served: Served, choice: Any, wanted: ToolChoice, names: list[str]
) -> None:
    request = await asked(served, tools=[FUNCTION, SPACE], tool_choice=choice)
    assert request.tool_choice == wanted
    assert [tool.name for tool in conversation(request).tools] == names


# ---------------------------------------------------------------------------------- what is refused

IMAGE = {"type": "input_image", "image_url": "data:,"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model"),
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": [THOUGHT]}, "input"),
    ({"input": 5}, "input"),
    ({"input": ["Hi"]}, "input.0"),
    ({"input": [{"content": "x"}]}, "input.0.type"),
    ({"input": [{"type": 5}]}, "input.0.type"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
    ({"input": [{"role": "user"}]}, "input.0.content"),
    ({"input": [{"role": "user", "content": 5}]}, "input.0.content"),
    ({"input": [{"role": "user", "content": [IMAGE]}]}, "input.0.content.0"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0"),
    ({"input": [RETURNED | {"output": [IMAGE]}]}, "input.0.output.0"),
    ({"input": [CALL | {"name": None}]}, "input.0.name"),
    ({"input": [CALL | {"arguments": 5}]}, "input.0.arguments"),
    ({"input": [CUSTOM | {"input": None}]}, "input.0.input"),
    ({"input": [THOUGHT | {"content": 5}]}, "input.0.content"),
    ({"input": [{"type": "item_reference", "id": "msg_9"}]}, "input.0.id"),
    ({"input": [{"id": "msg_9"}]}, "input.0.id"),
    ({"instructions": 5}, "instructions"),
    ({"background": True}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"n": 2}, "n"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"include": "x"}, "include"),
    ({"reasoning": "low"}, "reasoning"),
    ({"reasoning": {"effort": "a b"}}, "reasoning.effort"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_object"}}, "grammar": 'root ::= "a"'}, "text.format"),
    ({"tools": [{}]}, "tools.0.type"),
    ({"tools": [{"type": "function"}]}, "tools.0.name"),
    ({"tools": [FUNCTION | {"name": ""}]}, "tools.0.name"),
    ({"tools": [FUNCTION | {"parameters": 5}]}, "tools.0.parameters"),
    ({"tools": [{"type": "namespace", "name": "n"}]}, "tools.0.tools"),
    ({"tools": [SPACE | {"tools": [{"type": "function"}]}]}, "tools.0.tools.0.name"),
    ({"tool_choice": "any"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.tools"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_what_cannot_be_served_is_refused_by_its_path(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    for stream in (False, True):
        body = {"model": MODEL, "input": "Hi", "stream": stream, **fields}
        reply = await served.http.post(PATH, json=body)
        assert reply.status_code == 400, reply.text
        error = reply.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param
    assert not served.host.requests


async def test_a_number_that_cannot_be_sent_back_is_refused(served: Served) -> None:
    body = f'{{"model": "{MODEL}", "input": "Hi", "metadata": {{"a": NaN}}}}'
    headers = {"content-type": "application/json"}
    assert (await served.http.post(PATH, content=body, headers=headers)).status_code == 400


@pytest.mark.parametrize("stream", [False, True])
async def test_an_overflow_is_a_status_with_its_code(served: Served, stream: bool) -> None:
    served.host.script = lambda request: [ContextOverflow(5000, 4096)]
    body = {"model": MODEL, "input": "Hi", "stream": stream}
    reply = await served.http.post(PATH, json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert "5000" in error["message"]
    assert "4096" in error["message"]


# ------------------------------------------------------------------------------ what is answered


async def test_a_response_has_every_part(served: Served) -> None:
    response = await create(served, instructions="Be brief.", metadata={"a": "b"}, user="u")
    (item,) = response.pop("output")
    part = {"type": "output_text", "text": "Hello there", "annotations": [], "logprobs": []}
    assert item.pop("id").startswith("msg_")
    assert item == {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    assert response.pop("id").startswith("resp_")
    assert response.pop("created_at") <= response.pop("completed_at")
    assert response.pop("timings")["prefill_ms"] == 2.0
    assert response == {
        "object": "response",
        "status": "completed",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": "Be brief.",
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": MODEL,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": True,
        "temperature": 0.8,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 0.95,
        "truncation": "disabled",
        "usage": {
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 7,
        },
        "user": "u",
        "metadata": {"a": "b"},
    }


async def test_a_text_streams_event_by_event(served: Served) -> None:
    told = await events(served)
    assert kinds(told) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    created, _, added, part, *_, text, _, done, completed = told
    assert created["response"]["status"] == "in_progress"
    assert created["response"]["output"] == []
    assert created["response"]["usage"] is None
    assert added["item"]["status"] == "in_progress"
    assert added["item"]["content"] == []
    assert part["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert joined(told, "output_text") == text["text"] == "Hello there"
    assert done["item"]["status"] == "completed"
    assert completed["response"]["output"] == [done["item"]]
    assert completed["response"]["timings"]["decode_ms"] == 3.0
    ids = {event["item_id"] for event in told if "item_id" in event}
    assert ids == {added["item"]["id"]} == {done["item"]["id"]}


THINKS_AND_CALLS: list[Step] = [
    Reasoning("Hm"),
    Reasoning("."),
    Text("Let me see."),
    *call(0, "f", '{"a"', ": 1}"),
    *call(1, "patch", '{"input": "*** Be', "gin\\", 'n\\"ü\\u00fc\\ud83d', '\\ude00"}'),
    Finished(CALLED, Usage(5, 9, 0, 2), Timings()),
]
PATCHED = '*** Begin\n"üü😀'


async def test_thoughts_texts_and_calls_are_items_in_their_order() -> None:
    async with serving(script(*THINKS_AND_CALLS)) as served:
        told = await events(served, tools=[FUNCTION, PATCH])
        whole = await create(served, tools=[FUNCTION, PATCH])
    assert [kind for kind in kinds(told) if "delta" not in kind] == [
        *("created", "in_progress"),
        *("output_item.added", "reasoning_text.done", "output_item.done"),
        *("output_item.added", "content_part.added", "output_text.done", "content_part.done"),
        "output_item.done",
        *("output_item.added", "function_call_arguments.done", "output_item.done"),
        *("output_item.added", "custom_tool_call_input.done", "output_item.done"),
        "completed",
    ]
    assert joined(told, "reasoning_text") == "Hm."
    assert joined(told, "function_call_arguments") == '{"a": 1}'
    assert joined(told, "custom_tool_call_input") == PATCHED
    assert kinds(told).count("custom_tool_call_input.delta") > 1
    added = [event for event in told if event["type"].endswith("item.added")]
    done = [event for event in told if event["type"].endswith("item.done")]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3]
    assert [e["item"]["id"] for e in added] == [e["item"]["id"] for e in done]
    for output in (told[-1]["response"]["output"], whole["output"]):
        thought, text, function, custom = output
        assert thought["content"] == [{"type": "reasoning_text", "text": "Hm."}]
        assert thought["summary"] == []
        assert text["content"][0]["text"] == "Let me see."
        assert (function["call_id"], function["name"]) == ("c0", "f")
        assert function["arguments"] == '{"a": 1}'
        assert (custom["type"], custom["call_id"]) == ("custom_tool_call", "c1")
        assert custom["input"] == PATCHED
        assert {item["status"] for item in output} == {"completed"}
    assert whole["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}


async def test_what_an_answer_said_is_what_it_is_when_it_comes_back() -> None:
    async with serving(script(*THINKS_AND_CALLS)) as served:
        output = (await create(served, tools=[FUNCTION, PATCH]))["output"]
        (said,) = await turns(served, *output, tools=[FUNCTION, PATCH])
    assert (said.reasoning, said.content) == ("Hm.", "Let me see.")
    assert [c.id for c in said.tool_calls] == ["c0", "c1"]
    assert json.loads(said.tool_calls[1].arguments) == {"input": PATCHED}


async def test_a_limit_makes_a_response_incomplete() -> None:
    cut: list[list[Step]] = [
        [Text("Hel")],
        [Reasoning("Hm")],
        call(0, "f", '{"a"', ends=False),
        call(0, "patch", '{"input": "a', ends=False),
    ]
    for steps in cut:
        host = script(*steps, finished(2, FinishReason.LENGTH))
        async with serving(host) as served:
            told = await events(served, tools=[FUNCTION, PATCH])
            whole = await create(served, tools=[FUNCTION, PATCH])
        assert kinds(told)[-1] == "incomplete"
        assert kinds(told)[-2] == "output_item.done"
        for response in (told[-1]["response"], whole):
            assert response["status"] == "incomplete"
            assert response["incomplete_details"] == {"reason": "max_output_tokens"}
            assert response["completed_at"] is None
            assert [item["status"] for item in response["output"]] == ["incomplete"]


async def test_a_call_that_broke_off_is_incomplete_and_the_rest_is_text() -> None:
    host = script(*call(0, "f", '{"a', ends=False), Text(" oh"), finished(2))
    async with serving(host) as served:
        for response in ((await events(served))[-1]["response"], await create(served)):
            broken, text = response["output"]
            assert (broken["status"], broken["arguments"]) == ("incomplete", '{"a')
            assert (text["status"], text["content"][0]["text"]) == ("completed", " oh")


async def test_a_call_without_arguments_has_empty_ones() -> None:
    async with serving(script(*call(0, "f"), finished(2, CALLED))) as served:
        told = await events(served)
        assert joined(told, "function_call_arguments") == "{}"
        assert (await create(served))["output"][0]["arguments"] == "{}"


async def test_calls_side_by_side_stay_apart() -> None:
    first, second = call(0, "f", '{"a"', ":1}"), call(1, "f", '{"b"', ":2}")
    steps = [step for pair in zip(first, second, strict=True) for step in pair]
    async with serving(script(*steps, finished(2, CALLED))) as served:
        output = (await events(served))[-1]["response"]["output"]
    assert [item["arguments"] for item in output] == ['{"a":1}', '{"b":2}']


async def test_an_answer_of_nothing_is_an_empty_message() -> None:
    async with serving(script(finished(0))) as served:
        told = await events(served)
        (item,) = told[-1]["response"]["output"]
    assert kinds(told)[2:-1] == [
        "output_item.added",
        "content_part.added",
        "output_text.done",
        "content_part.done",
        "output_item.done",
    ]
    assert item["content"][0]["text"] == ""


ODD_INPUTS = [
    ('{"input": ""}', ""),
    ('{"other": 1}', '{"other": 1}'),
    ('{"other": 1, "input": "x"}', "x"),
    ("not JSON", "not JSON"),
    ('{"input": "\\ud83d alone"}', "\ufffd alone"),
    ('{"input": "a\\qb"}', "a\\qb"),
    ('{"input": 5}', '{"input": 5}'),
]


@pytest.mark.parametrize(("arguments", "text"), ODD_INPUTS)
async def test_free_text_is_found_in_arguments_of_any_shape(arguments: str, text: str) -> None:
    for parts in ([arguments], list(arguments)):
        async with serving(script(*call(0, "patch", *parts), finished(2, CALLED))) as served:
            told = await events(served, tools=[PATCH])
        assert joined(told, "custom_tool_call_input") == text
        assert told[-1]["response"]["output"][0]["input"] == text


def one(letter: bytes) -> Logprobs:
    return Logprobs((TokenLogprob(letter, -0.5, ((letter, -0.5), (b"z", -1.0))),))


async def test_logprobs_go_with_the_text_and_nothing_else() -> None:
    steps = [one(b"t"), Reasoning("t"), one(b"a"), one(b"b"), Text("ab"), one(b"<end>")]
    async with serving(script(*steps, finished(3))) as served:
        told = await events(served, include=["message.output_text.logprobs"], top_logprobs=2)
        whole = await create(served, top_logprobs=2)
        off = await create(served)
    delta = next(event for event in told if event["type"] == "response.output_text.delta")
    done = next(event for event in told if event["type"] == "response.output_text.done")
    for entries in (
        delta["logprobs"],
        done["logprobs"],
        whole["output"][1]["content"][0]["logprobs"],
    ):
        assert [entry["token"] for entry in entries] == ["a", "b"]
        assert [top["token"] for top in entries[0]["top_logprobs"]] == ["a", "z"]
        assert entries[0]["bytes"] == [97]
    assert off["output"][1]["content"][0]["logprobs"] == []


async def test_a_late_error_is_an_event_and_a_failed_response() -> None:
    async with serving(script(Text("Hel"), 0.01, EngineFailed("It died."))) as served:
        *_, error, failed = await events(served)
    assert (error["type"], error["code"], error["message"]) == (
        "error",
        "engine_failed",
        "It died.",
    )
    assert error["error"]["message"] == "It died."
    assert failed["type"] == "response.failed"
    response = failed["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": "engine_failed", "message": "It died."}
    assert response["output"][0]["status"] == "incomplete"


async def test_silence_is_filled_with_progress() -> None:
    pace = Pace(commit_after_s=0.05, keepalive_s=0.05)
    slow: list[Step] = [Loading(0.5), 0.2, Started(5, 4096), Prefill(1, 5, 0), 0.2, Text("Hi")]
    async with serving(ScriptedHost(lambda _: [*slow, finished(1)]), pace=pace) as served:
        told = await events(served)
        watched = await events(served, return_progress=True)
    waits = [event for event in told if event["type"] == "response.in_progress"]
    assert len(waits) >= 5
    assert {event["response"]["id"] for event in told if "response" in event} == {
        waits[0]["response"]["id"]
    }
    assert kinds(told)[-1] == "completed"
    progress = [event["prompt_progress"] for event in watched if "prompt_progress" in event]
    assert {"total": 5, "cache": 0, "processed": 1} in progress
