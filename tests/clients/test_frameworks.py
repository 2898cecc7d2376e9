"""What people build on: litellm, langchain, pydantic-ai, `llm` and the `ollama` package."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.app.scripted import MODEL
from tests.clients.conftest import Scripted
from tests.clients.test_openai import ADD, ASK, TOOLS

ROOT = Path(__file__).resolve().parents[2]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The one.
        b: The other.
    """
    return a + b


@pytest.mark.parametrize(
    ("name", "tail"), [("openai", "/v1"), ("anthropic", ""), ("ollama_chat", "")]
)
def test_litellm(scripted: Scripted, name: str, tail: str) -> None:
    import litellm

    def ask(**more: Any) -> Any:
        return litellm.completion(
            model=f"{name}/{MODEL}", api_base=f"{scripted.url}{tail}", api_key="any", **more
        )

    assert ask(messages=ASK).choices[0].message.content == "Hello there"
    message = ask(messages=ASK, tools=TOOLS).choices[0].message
    (call,) = message.tool_calls
    assert json.loads(call.function.arguments) == {"a": 2, "b": 3}
    result = {"role": "tool", "tool_call_id": call.id, "content": "5"}
    reply = ask(messages=[*ASK, message, result], tools=TOOLS)
    assert reply.choices[0].message.content == "It is 5."


@pytest.mark.parametrize("responses", [False, True])
def test_langchain(scripted: Scripted, responses: bool) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model=MODEL,
        base_url=f"{scripted.url}/v1",
        api_key=SecretStr("any"),
        use_responses_api=responses,
    )  # type: ignore[call-arg]
    assert model.invoke("Hi").text == "Hello there"
    assert "".join(chunk.text for chunk in model.stream("Hi")) == "Hello there"
    told = HumanMessage("Add 2 and 3.")
    armed = model.bind_tools([add])
    message = armed.invoke([told])
    (call,) = message.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 2, "b": 3})
    result = ToolMessage("5", tool_call_id=call["id"])
    assert armed.invoke([told, message, result]).text == "It is 5."


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_pydantic_ai(scripted: Scripted, kind: str) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{scripted.url}/v1", api_key="any")
    made = OpenAIChatModel if kind == "chat" else OpenAIResponsesModel
    model = made(MODEL, provider=provider)
    assert Agent(model).run_sync("Hi").output == "Hello there"
    assert Agent(model, tools=[add]).run_sync("Add 2 and 3.").output == "It is 5."
    assert scripted.tool_results() == ["5"]


def _llm(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llm", *arguments],
        env={"PATH": "", "HOME": str(home), "LLM_USER_PATH": str(home), "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


def test_llm(scripted: Scripted, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: toy\n  model_name: {MODEL}\n  api_base: {scripted.url}/v1\n"
        "  supports_tools: true\n"
    )
    assert _llm(tmp_path, "-m", "toy", "Hi") == "Hello there"
    assert _llm(tmp_path, "-m", "toy", "--no-stream", "Hi") == "Hello there"
    source = "def add(a: int, b: int) -> int:\n    return a + b\n"
    assert _llm(tmp_path, "-m", "toy", "--functions", source, "Add 2 and 3.") == "It is 5."
    assert scripted.tool_results() == ["5"]


def test_ollama(scripted: Scripted) -> None:
    import ollama

    client = ollama.Client(host=scripted.url)
    assert client.chat(model=MODEL, messages=ASK).message.content == "Hello there"
    parts = client.chat(model=MODEL, messages=ASK, stream=True)
    assert "".join(part.message.content or "" for part in parts) == "Hello there"
    message = client.chat(model=MODEL, messages=ASK, tools=[add]).message
    assert message.thinking == "I need a sum."
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.function.arguments == {"a": 2, "b": 3}
    result = {"role": "tool", "tool_name": "add", "content": "5"}
    reply = client.chat(model=MODEL, messages=[*ASK, message, result], tools=[add])
    assert reply.message.content == "It is 5."
    assert scripted.asked[-1].tools[0].description.startswith(ADD["description"])
    assert MODEL in {model.model for model in client.list().models}
