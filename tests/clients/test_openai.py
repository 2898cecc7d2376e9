"""The `openai` package: chat, streams, tools, responses, completions."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from models.chat import FinishReason, Prefill, Reasoning, Role, Started, Text
from tests.app.scripted import MODEL, finished
from tests.clients.conftest import Scripted

ADD: dict[str, Any] = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
TOOLS: Any = [{"type": "function", "function": ADD}]
ASK: Any = [{"role": "user", "content": "Add 2 and 3."}]


@pytest.fixture
def client(scripted: Scripted) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="any", max_retries=0) as made:
        yield made


def test_chat(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=ASK)
    assert reply.choices[0].message.content == "Hello there"
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 3


def test_chat_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=ASK, stream_options={"include_usage": True}
    ) as stream:
        reply = stream.get_final_completion()
    assert reply.choices[0].message.content == "Hello there"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 2


def test_chat_calls_a_tool_and_reads_its_result(client: openai.OpenAI, scripted: Scripted) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS)
    message = reply.choices[0].message
    assert reply.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"a": 2, "b": 3}
    turn: Any = message.model_dump(exclude_none=True)
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "5"}
    reply = client.chat.completions.create(model=MODEL, messages=[*ASK, turn, result], tools=TOOLS)
    assert reply.choices[0].message.content == "It is 5."
    assistant = next(m for m in scripted.asked[-1].messages if m.role is Role.ASSISTANT)
    assert assistant.reasoning == "I need a sum."


def test_a_streamed_call_adds_up(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=ASK, tools=TOOLS) as stream:
        reply = stream.get_final_completion()
    assert reply.choices[0].message.tool_calls is not None
    (call,) = reply.choices[0].message.tool_calls
    assert (call.id, call.function.name) == ("a1b2c3d4e", "add")
    assert json.loads(call.function.arguments) == {"a": 2, "b": 3}


def test_completions(client: openai.OpenAI, scripted: Scripted) -> None:
    scripted.host.script = lambda _: [Started(5, 4096), Prefill(5, 5, 3), Text("upon"), finished(1)]
    reply = client.completions.create(model=MODEL, prompt="Once")
    assert reply.choices[0].text == "upon"
    stream = client.completions.create(model=MODEL, prompt="Once", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == "upon"


def test_responses(client: openai.OpenAI) -> None:
    reply = client.responses.create(model=MODEL, input="Hi")
    assert (reply.status, reply.output_text) == ("completed", "Hello there")
    again = client.responses.create(model=MODEL, input="And?", previous_response_id=reply.id)
    assert again.output_text == "Hello there"
    assert client.responses.retrieve(reply.id).output_text == "Hello there"


def test_responses_stream_a_call_and_read_its_result(
    client: openai.OpenAI, scripted: Scripted
) -> None:
    tools: Any = [{"type": "function", **ADD, "strict": True}]
    with client.responses.stream(model=MODEL, input=ASK, tools=tools, store=False) as stream:
        kinds = [event.type for event in stream]
        reply = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    reasoning, call = reply.output
    assert reasoning.type == "reasoning"
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"a": 2, "b": 3}
    items: Any = [*ASK, *(item.model_dump(exclude_none=True) for item in reply.output)]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "5"})
    reply = client.responses.create(model=MODEL, input=items, tools=tools, store=False)
    assert reply.output_text == "It is 5."
    assistant = next(m for m in scripted.asked[-1].messages if m.role is Role.ASSISTANT)
    assert assistant.reasoning == "I need a sum."


def test_reasoning_is_carried_sealed(client: openai.OpenAI, scripted: Scripted) -> None:
    tools: Any = [{"type": "function", **ADD, "strict": True}]
    asks: dict[str, Any] = {"model": MODEL, "tools": tools, "store": False}
    asks["include"] = ["reasoning.encrypted_content"]
    reply = client.responses.create(input=ASK, **asks)
    reasoning, call = reply.output
    assert reasoning.type == "reasoning"
    assert call.type == "function_call"
    assert reasoning.encrypted_content
    carried: Any = reasoning.model_dump(exclude_none=True) | {"content": []}
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "5"}
    turn: Any = call.model_dump(exclude_none=True)
    client.responses.create(input=[*ASK, carried, turn, result], **asks)
    assistant = next(m for m in scripted.asked[-1].messages if m.role is Role.ASSISTANT)
    assert assistant.reasoning == "I need a sum."


def test_input_tokens_are_counted(client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model=MODEL, input=ASK)
    assert counted.input_tokens == len(ASK[0]["content"])  # a token a letter


def test_models_and_errors(client: openai.OpenAI) -> None:
    assert MODEL in {model.id for model in client.models.list()}
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nobody", messages=ASK)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=ASK, temperature=9)
    assert caught.value.param == "temperature"


def test_an_answer_that_was_cut_says_so(client: openai.OpenAI, scripted: Scripted) -> None:
    scripted.host.script = lambda _: [
        Started(5, 4096),
        Reasoning("Hm"),
        finished(1, FinishReason.LENGTH),
    ]
    reply = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=1)
    assert reply.choices[0].finish_reason == "length"
    response = client.responses.create(model=MODEL, input="Hi", max_output_tokens=1)
    assert response.status == "incomplete"
