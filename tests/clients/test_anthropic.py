"""The `anthropic` package: messages, streams, tools, counting."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from models.chat import Role
from tests.app.scripted import MODEL
from tests.clients.conftest import Scripted
from tests.clients.test_openai import ADD, ASK

TOOLS: Any = [{"name": "add", "description": ADD["description"], "input_schema": ADD["parameters"]}]


@pytest.fixture
def client(scripted: Scripted) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=scripted.url, api_key="any", max_retries=0) as made:
        yield made


def test_a_message(client: anthropic.Anthropic) -> None:
    reply = client.messages.create(model=MODEL, max_tokens=20, messages=ASK, system="Be brief.")
    (block,) = reply.content
    assert block.type == "text"
    assert block.text == "Hello there"
    assert reply.stop_reason == "end_turn"
    assert (reply.usage.input_tokens, reply.usage.cache_read_input_tokens) == (2, 3)


def test_a_stream(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=20, messages=ASK) as stream:
        text = "".join(stream.text_stream)
        reply = stream.get_final_message()
    assert text == "Hello there"
    assert reply.usage.output_tokens == 2


def test_a_streamed_call_and_its_result(client: anthropic.Anthropic, scripted: Scripted) -> None:
    with client.messages.stream(model=MODEL, max_tokens=20, messages=ASK, tools=TOOLS) as stream:
        reply = stream.get_final_message()
    thinking, call = reply.content
    assert thinking.type == "thinking"
    assert thinking.signature
    assert call.type == "tool_use"
    assert call.input == {"a": 2, "b": 3}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "5"}
    turns: Any = [
        *ASK,
        {"role": "assistant", "content": reply.content},
        {"role": "user", "content": [result]},
    ]
    reply = client.messages.create(model=MODEL, max_tokens=20, messages=turns, tools=TOOLS)
    (block,) = reply.content
    assert block.type == "text"
    assert block.text == "It is 5."
    assistant = next(m for m in scripted.asked[-1].messages if m.role is Role.ASSISTANT)
    assert assistant.reasoning == "I need a sum."


def test_counting(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=ASK, tools=TOOLS)
    assert counted.input_tokens == len(ASK[0]["content"])  # a token a letter


def test_models(client: anthropic.Anthropic) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert listed[MODEL].type == "model"
    assert listed[MODEL].display_name
    assert listed[MODEL].created_at.year == 2023
    assert client.models.retrieve(MODEL).id == MODEL


def test_errors(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nobody", max_tokens=20, messages=ASK)
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(model=MODEL, max_tokens=0, messages=ASK)
