"""Each client asks a real model a plain question."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.app.test_real_model import MODEL, Served
from tests.clients.test_frameworks import _llm

ASK = "Say hello."
Ask = Callable[[str], str]


def by_openai(url: str) -> str:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        reply = client.responses.create(model=MODEL, input=ASK, max_output_tokens=12)
    return reply.output_text


def by_anthropic(url: str) -> str:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="any") as client:
        reply = client.messages.create(
            model=MODEL, max_tokens=12, messages=[{"role": "user", "content": ASK}]
        )
    (block,) = reply.content
    assert block.type == "text"
    return block.text


def by_litellm(url: str) -> str:
    import litellm

    reply = litellm.completion(
        model=f"openai/{MODEL}",
        api_base=f"{url}/v1",
        api_key="any",
        messages=[{"role": "user", "content": ASK}],
        max_tokens=12,
    )
    return str(reply.choices[0].message.content)  # type: ignore[union-attr]


def by_langchain(url: str) -> str:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=f"{url}/v1", api_key=SecretStr("any"), max_tokens=12)  # type: ignore[call-arg]
    return model.invoke(ASK).text


def by_pydantic_ai(url: str) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="any")
    agent = Agent(OpenAIChatModel(MODEL, provider=provider), model_settings={"max_tokens": 12})
    return agent.run_sync(ASK).output


def by_ollama(url: str) -> str:
    import ollama

    return ollama.Client(host=url).generate(MODEL, ASK, options={"num_predict": 12}).response or ""


CLIENTS: list[Ask] = [by_openai, by_anthropic, by_litellm, by_langchain, by_pydantic_ai, by_ollama]


@pytest.mark.parametrize("ask", CLIENTS, ids=[ask.__name__.removeprefix("by_") for ask in CLIENTS])
def test_a_plain_question_is_answered(starter: Served, ask: Ask) -> None:
    assert ask(starter.url).strip()
    assert starter.process.poll() is None


def test_a_plain_question_on_the_command_line(starter: Served, tmp_path: Path) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: real\n  model_name: {MODEL}\n  api_base: {starter.url}/v1\n"
    )
    assert _llm(tmp_path, "-m", "real", "-o", "max_tokens", "12", ASK)
