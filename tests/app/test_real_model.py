"""The whole way on real weights: a server process, the client people use, the counts it reports."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessageParam,
    ChatCompletionToolParam,
)

from runtimes.placement import MIN_SHARED

ROOT = Path(__file__).resolve().parents[2]
MODEL = "smollm2:135m"
RULES = "\n".join(f"Rule {i}: drawer {i * 7} holds only blue cord." for i in range(1, 66))


@dataclass
class Served:
    """A server process on the starter model, started for one test."""

    url: str
    process: "subprocess.Popen[str]"

    def client(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="any", max_retries=0)

    def metric(self, name: str) -> int:
        text = httpx.get(f"{self.url}/metrics").text
        found = re.search(rf'^{name}{{model="{MODEL}"}} (\S+)$', text, re.MULTILINE)
        assert found is not None, f"no {name} in {text}"
        return int(float(found[1]))


@contextmanager
def serving(home: Path, *arguments: str) -> Iterator[Served]:
    """A server that knows nothing but the installed starter model."""
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "serve", "--port", "0", "--ctx", "4096", *arguments],
        cwd=ROOT,
        env={
            "PATH": "",
            "HOME": str(home),
            "RUNNER_HOME": str(home / "runner"),
            "HF_HUB_OFFLINE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout as out:
        found = re.search(r"http://\S+", out.readline())
        assert found is not None
        yield Served(found[0], process)
        process.terminate()
        assert process.wait(30) == 0


@pytest.fixture
def served(tmp_path: Path, smollm2_path: Path) -> Iterator[Served]:
    """One for the test."""
    assert smollm2_path.exists()
    with serving(tmp_path) as one:
        yield one


def turn(*texts: str) -> list[ChatCompletionMessageParam]:
    """A system turn, then user and assistant in turn."""
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": RULES}]
    for index, text in enumerate(texts):
        if index % 2:
            messages.append({"role": "assistant", "content": text})
        else:
            messages.append({"role": "user", "content": text})
    return messages


def cached(reply: ChatCompletion) -> int:
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    return reply.usage.prompt_tokens_details.cached_tokens or 0


def test_the_sdk_gets_the_same_answer_streamed_and_whole_with_right_usage(served: Served) -> None:
    client = served.client()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
    whole = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=12
    )
    stream = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        temperature=0,
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usages = "", []
    for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        usages += [chunk.usage] if chunk.usage else []
    assert text == whole.choices[0].message.content
    assert text
    assert whole.usage is not None
    assert len(usages) == 1
    assert usages[0].prompt_tokens == whole.usage.prompt_tokens == 33
    assert usages[0].completion_tokens == whole.usage.completion_tokens <= 12
    assert whole.usage.total_tokens == 33 + whole.usage.completion_tokens


def test_eight_requests_that_share_a_prefix_compute_it_once(served: Served) -> None:
    client = served.client()

    def ask(number: int) -> ChatCompletion:
        return client.chat.completions.create(
            model=MODEL, messages=turn(f"What is in drawer {number}?"), temperature=0, max_tokens=4
        )

    with ThreadPoolExecutor(8) as together:
        replies = list(together.map(ask, range(8)))
    prompts = [reply.usage.prompt_tokens for reply in replies if reply.usage]
    assert len(prompts) == 8
    prefix = min(prompts) - 12  # all but the question's last words and the turn's end
    assert prefix > 950
    tails = sum(prompt - prefix for prompt in prompts)
    assert served.metric("runner_prompt_rows_total") <= 1.1 * (prefix + tails)
    assert served.metric("runner_prompt_tokens_total") == sum(prompts)
    # nobody waits for the last few tokens of what is being read
    assert sum(cached(reply) for reply in replies) >= 7 * (prefix - MIN_SHARED)


def test_the_next_turn_reads_only_what_is_new(served: Served) -> None:
    client = served.client()
    first = client.chat.completions.create(
        model=MODEL, messages=turn("Name drawer 14."), temperature=0, max_tokens=12
    )
    said = first.choices[0].message.content or ""
    assert first.usage is not None
    second = client.chat.completions.create(
        model=MODEL,
        messages=turn("Name drawer 14.", said, "And drawer 21?"),
        temperature=0,
        max_tokens=4,
    )
    assert cached(first) == 0
    assert second.usage is not None
    assert 0.95 * first.usage.prompt_tokens <= cached(second) < second.usage.prompt_tokens


@pytest.mark.parametrize("arguments", [(), ("--no-disk-cache",)])
def test_a_restart_costs_no_reading_unless_the_disk_is_not_to_be_used(
    tmp_path: Path, smollm2_path: Path, arguments: tuple[str, ...]
) -> None:
    assert smollm2_path.exists()
    replies: list[ChatCompletion] = []
    for _ in range(2):
        with serving(tmp_path, *arguments) as one:
            replies.append(
                one.client().chat.completions.create(
                    model=MODEL, messages=turn("Name drawer 14."), temperature=0, max_tokens=12
                )
            )
    first, second = replies
    assert second.choices[0].message.content
    assert first.usage is not None
    kept = list((tmp_path / "runner" / "cache").rglob("*.kv"))
    if arguments:
        assert not (tmp_path / "runner" / "cache" / "kv").exists()
        assert list((tmp_path / "runner").rglob("*.kv")) == []
        assert cached(second) == 0
    else:
        assert len(kept) >= first.usage.prompt_tokens // 256
        assert cached(second) == first.usage.prompt_tokens - 1


def test_a_seed_gives_the_same_text_whatever_else_runs(served: Served) -> None:
    client = served.client()

    def ask(text: str, seed: int, tokens: int = 24) -> str:
        reply = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": text}],
            temperature=1,
            seed=seed,
            max_tokens=tokens,
        )
        return reply.choices[0].message.content or ""

    alone = ask("Write a line about moss.", 101)
    with ThreadPoolExecutor(4) as others:
        noise = [others.submit(ask, f"Write of {w}.", i, 48) for i, w in enumerate("abcd")]
        crowded = ask("Write a line about moss.", 101)
        assert all(n.result() for n in noise)
    assert crowded == alone
    assert ask("Write a line about moss.", 102) != alone


def test_logprobs_do_not_depend_on_what_was_cached_or_ran_before(served: Served) -> None:
    client = served.client()

    def logprobs() -> list[float]:
        reply = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Pick a colour."}],
            temperature=0,
            max_tokens=6,
            logprobs=True,
        )
        entries = reply.choices[0].logprobs
        assert entries is not None
        return [entry.logprob for entry in entries.content or []]

    first = logprobs()
    client.chat.completions.create(model=MODEL, messages=turn("Name drawer 14."), max_tokens=8)
    with ThreadPoolExecutor(2) as others:
        noise = [
            others.submit(
                client.chat.completions.create, model=MODEL, messages=turn(text), max_tokens=16
            )
            for text in ("Name drawer 21.", "Name drawer 28.")
        ]
        beside = logprobs()
        assert all(n.result().choices for n in noise)
    assert beside == first
    assert logprobs() == first


def test_errors_are_the_sdk_s_own(served: Served) -> None:
    client = served.client()
    with pytest.raises(openai.NotFoundError, match=MODEL):
        client.chat.completions.create(model="nothing", messages=turn("hi"))
    with pytest.raises(openai.BadRequestError, match="4096") as caught:
        client.chat.completions.create(model=MODEL, messages=turn(RULES * 5))
    assert caught.value.code == "context_length_exceeded"
    models = {model.id: model for model in client.models.list()}
    assert getattr(models[MODEL], "context_length") == 4096  # noqa: B009 - not in the SDK's type


FOLD: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "fold",
        "parameters": {
            "type": "object",
            "properties": {"paper": {"enum": ["red", "blue"]}, "times": {"type": "integer"}},
            "required": ["paper", "times"],
        },
    },
}


def test_a_tool_that_must_be_called_is_called_in_order(served: Served) -> None:
    client = served.client()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Fold the red one."}]
    reply = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        tools=[FOLD],
        tool_choice={"type": "function", "function": {"name": "fold"}},
        temperature=0,
        max_tokens=80,
    )
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "fold"
    arguments = json.loads(call.function.arguments)
    assert arguments["paper"] in ("red", "blue")
    assert isinstance(arguments["times"], int)


def test_what_a_tool_returned_adds_to_the_cached_prompt(served: Served) -> None:
    client = served.client()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Fold both. " * 20}]
    first = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[FOLD], tool_choice="required", max_tokens=60
    )
    message = first.choices[0].message
    messages.append(message.to_dict())  # type: ignore[arg-type]
    returned: list[ChatCompletionMessageParam] = [
        {"role": "tool", "tool_call_id": call.id, "content": "done"}
        for call in message.tool_calls or []
    ]
    messages += returned
    again = client.chat.completions.create(
        model=MODEL, messages=messages, tools=[FOLD], max_tokens=4
    )
    assert first.usage is not None
    assert cached(again) >= 0.95 * first.usage.prompt_tokens


def test_a_greedy_answer_is_the_likeliest_when_it_is_scored_as_a_prompt(served: Served) -> None:
    """As evaluations do it: token ids in, the prompt's own logprobs out."""
    client = served.client()
    asked = "The days of the week are Monday, Tuesday,"
    said = client.completions.create(model=MODEL, prompt=asked, temperature=0, max_tokens=12)

    def tokens(text: str) -> list[int]:
        body = {"model": MODEL, "prompt": text, "add_special_tokens": False}
        return httpx.post(f"{served.url}/tokenize", json=body).json()["tokens"]

    ids, start = tokens(asked + said.choices[0].text), len(tokens(asked))
    scored = client.completions.create(
        model=MODEL, prompt=ids, echo=True, logprobs=1, max_tokens=0, temperature=0
    )
    assert scored.choices[0].text == asked + said.choices[0].text
    assert scored.choices[0].finish_reason == "length"
    assert scored.usage is not None
    assert (scored.usage.prompt_tokens, scored.usage.completion_tokens) == (len(ids), 0)
    told = scored.choices[0].logprobs
    assert told is not None
    assert told.tokens is not None
    assert "".join(told.tokens) == asked + said.choices[0].text
    values, tops = told.token_logprobs or [], told.top_logprobs or []
    assert len(values) == len(ids)
    assert values[0] is None
    for value, top in zip(values[start:], tops[start:], strict=True):
        assert value == max(top.values())
    assert min(values[1:start]) < -2, "the prompt was not written by the model"
