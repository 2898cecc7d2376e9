"""What a client leaves out of the history of what the model thought comes back by itself."""

from collections.abc import Iterable
from typing import Any

import pytest

from app.recall import Recall, RecallingHost
from app.settings import Settings
from models.chat import (
    Conversation,
    FinishReason,
    Message,
    Reasoning,
    Request,
    Role,
    Started,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from tests.app.conftest import Served, serving
from tests.app.scripted import MODEL, ScriptedHost, Step, finished

ASK: dict[str, Any] = {"role": "user", "content": "Fold it."}
SYSTEM: dict[str, Any] = {"role": "system", "content": "It is 9 o'clock."}
TOOL: dict[str, Any] = {"name": "fold", "description": "", "parameters": {"type": "object"}}
THOUGHT = "They want it folded."


def thinking(request: Request) -> Iterable[Step]:
    """Thinks and calls where there are tools, else thinks and answers."""
    assert isinstance(request.prompt, Conversation)
    yield Started(5, 4096)
    yield Reasoning(THOUGHT[:9])
    yield Reasoning(THOUGHT[9:])
    if request.prompt.tools and request.prompt.messages[-1].role is Role.USER:
        yield ToolCallStart(0, "abcdefghi", "fold")
        yield ToolCallDelta(0, '{"b": 1, "a": [2]}')
        yield ToolCallEnd(0)
        yield finished(4, FinishReason.TOOL_CALLS)
    else:
        yield Text("Folded.\n")
        yield finished(4)


def thoughts(served: Served) -> list[str | None]:
    """The reasoning of each turn of the assistant, as the last request has it."""
    prompt = served.host.requests[-1].prompt
    assert isinstance(prompt, Conversation)
    return [m.reasoning for m in prompt.messages if m.role is Role.ASSISTANT]


async def post(served: Served, path: str, **fields: Any) -> Any:
    reply = await served.http.post(path, json={"model": MODEL, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def chat(served: Served, *messages: dict[str, Any], **fields: Any) -> None:
    await post(served, "/v1/chat/completions", messages=list(messages), **fields)


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def called(id: str, arguments: str) -> dict[str, Any]:
    call = {"id": id, "type": "function", "function": {"name": "fold", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


async def test_a_thought_comes_back_to_its_text_whatever_the_system_says_now() -> None:
    async with serving(ScriptedHost(thinking)) as served:
        await chat(served, SYSTEM, ASK)
        await chat(served, {**SYSTEM, "content": "10!"}, ASK, said("Folded."), ASK)
        assert thoughts(served) == [THOUGHT]


async def test_a_thought_of_another_conversation_does_not_come() -> None:
    async with serving(ScriptedHost(thinking)) as served:
        await chat(served, ASK)
        await chat(served, {**ASK, "content": "Press it."}, said("Folded."), ASK)
        assert thoughts(served) == [None]
        served.host.infos.append(served.host.infos[0])
        await chat(served, ASK, said("Folded!"), ASK)
        assert thoughts(served) == [None]


async def test_a_thought_comes_back_to_its_call_with_arguments_written_anew() -> None:
    async with serving(ScriptedHost(thinking)) as served:
        tools = [{"type": "function", "function": TOOL}]
        await chat(served, ASK, tools=tools)
        result = {"role": "tool", "tool_call_id": "other", "content": "done"}
        await chat(served, ASK, called("other", '{"a":[2],"b":1}'), result, tools=tools)
        assert thoughts(served) == [THOUGHT]
        # A client that rewrites its first turn is known by the call's id.
        await chat(served, {**ASK, "content": "Please."}, called("abcdefghi", "{}"), result)
        assert thoughts(served) == [THOUGHT]
        await chat(served, {**ASK, "content": "Please."}, called("nobody", "{}"), result)
        assert thoughts(served) == [None]


async def test_what_a_client_sends_itself_is_left_alone() -> None:
    async with serving(ScriptedHost(thinking)) as served:
        await chat(served, ASK)
        own = {**said("Folded."), "reasoning_content": "Mine."}
        await chat(served, ASK, own, ASK)
        assert thoughts(served) == ["Mine."]


async def test_a_thought_comes_back_in_every_dialect() -> None:
    async with serving(ScriptedHost(thinking)) as served:
        turns = [ASK, said("Folded."), ASK]
        await post(served, "/v1/messages", messages=[ASK], max_tokens=9)
        counted = await post(served, "/v1/messages/count_tokens", messages=turns)
        assert counted["input_tokens"] > 0
        assert thoughts(served) == [THOUGHT]
        asks = {
            "/v1/messages": {"messages": turns, "max_tokens": 9},
            "/v1/responses": {"input": turns},
            "/v1/responses/input_tokens": {"input": turns},
            "/api/chat": {"messages": turns, "stream": False},
            "/v1/chat/completions": {"messages": turns},
        }
        for path, fields in asks.items():
            served.host.requests.clear()
            await post(served, path, **fields)
            assert thoughts(served) == [THOUGHT], path


async def test_prompts_as_sent_get_nothing_back() -> None:
    settings = Settings(port=0, canonical_prompts=False)
    async with serving(ScriptedHost(thinking), settings) as served:
        await chat(served, ASK)
        await chat(served, ASK, said("Folded."), ASK)
        assert thoughts(served) == [None]


def test_memory_is_bounded_and_the_least_used_goes_first() -> None:
    recall = Recall(max_turns=2, max_letters=100)
    recall.keep([b"a"], "1")
    recall.keep([b"b"], "2")
    assert recall.find([b"x", b"a"]) == "1"
    recall.keep([b"c"], "3")
    assert [recall.find([key]) for key in (b"a", b"b", b"c")] == ["1", None, "3"]
    recall.keep([b"d"], "4" * 99)
    assert [recall.find([key]) for key in (b"a", b"c", b"d")] == [None, "3", "4" * 99]
    recall.keep([b"e"], "5" * 101)
    assert recall.find([b"e"]) is None


@pytest.mark.parametrize("arguments", ["", "{}", "no json", "[" * 50000, '{"a": "\\ud800"}'])
async def test_calls_of_any_shape_can_be_told_apart(arguments: str) -> None:
    calls = (ToolCall("functions.fold:0", "fold", arguments),)
    turns = (Message(Role.USER, "a"), Message(Role.ASSISTANT, "", None, calls))
    host = RecallingHost(ScriptedHost(thinking))
    assert [e async for e in host.generate(Request(MODEL, Conversation(turns)))]


async def test_ids_that_only_count_tell_no_turn_apart() -> None:
    def numbered(request: Request) -> Iterable[Step]:
        yield Started(5, 4096)
        yield Reasoning(THOUGHT)
        yield ToolCallStart(0, "functions.fold:0", "fold")
        yield ToolCallDelta(0, "{}")
        yield ToolCallEnd(0)
        yield finished(4, FinishReason.TOOL_CALLS)

    async with serving(ScriptedHost(numbered)) as served:
        await chat(served, ASK, tools=[{"type": "function", "function": TOOL}])
        result = {"role": "tool", "tool_call_id": "functions.fold:0", "content": "done"}
        turn = called("functions.fold:0", "{}")
        await chat(served, {**ASK, "content": "Please."}, turn, result)
        assert thoughts(served) == [None]
        await chat(served, ASK, turn, result)
        assert thoughts(served) == [THOUGHT]
