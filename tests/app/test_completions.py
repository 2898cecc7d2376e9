"""Plain completions: prompts in every form, and the older shapes of a reply."""

from typing import Any

import openai
import pytest

from models.chat import (
    Constraint,
    ConstraintKind,
    Logprobs,
    Prompted,
    RawPrompt,
    Request,
    Started,
    Text,
    TokenLogprob,
)
from tests.app.conftest import Served
from tests.app.scripted import MODEL, Step, answer, finished

PATH = "/v1/completions"


def echoing(request: Request) -> list[Step]:
    assert isinstance(request.prompt, RawPrompt)
    words = answer(f"<{request.prompt.content}|{request.sampling.seed}>")(request)
    return list(words)


@pytest.mark.parametrize(
    ("prompt", "contents"),
    [
        ("one", ["one"]),
        ("", [""]),
        (["one", "two"], ["one", "two"]),
        ([1, 2, 3], [(1, 2, 3)]),
        ([[1, 2], [3]], [(1, 2), (3,)]),
    ],
)
async def test_each_form_of_a_prompt(served: Served, prompt: Any, contents: list[Any]) -> None:
    reply = await served.complete(prompt=prompt)
    assert reply.status_code == 200, reply.text
    assert [request.prompt for request in served.host.requests] == [RawPrompt(c) for c in contents]
    assert served.host.requests[0].limits.max_tokens == 16
    assert reply.json()["object"] == "text_completion"


async def test_prompts_times_n_come_in_order(served: Served) -> None:
    served.host.script = echoing
    reply = (await served.complete(prompt=["a", "b"], n=2, seed=1)).json()
    assert [c["text"] for c in reply["choices"]] == ["<a|1>", "<a|2>", "<b|1>", "<b|2>"]
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"]["prompt_tokens"] == 10
    assert reply["usage"]["completion_tokens"] == 4
    stream = await served.stream(PATH, prompt=["a", "b"], n=2, seed=1)
    assert [stream.text(i) for i in range(4)] == ["<a|1>", "<a|2>", "<b|1>", "<b|2>"]
    assert [stream.finishes(i) for i in range(4)] == [["stop"]] * 4


async def test_echo_puts_the_prompt_in_front(served: Served) -> None:
    served.host.script = lambda request: [
        Started(5, 4096),
        Prompted("Once"),
        Text("Hello there"),
        finished(2),
    ]
    assert (await served.complete(echo=True)).json()["choices"][0]["text"] == "OnceHello there"
    assert (await served.stream(PATH, echo=True)).text() == "OnceHello there"


async def test_what_is_asked_of_the_prompt_reaches_the_model(served: Served) -> None:
    await served.complete(prompt=["a", [7]], echo=True, suffix="z", max_tokens=0)
    prompts = [request.prompt for request in served.host.requests]
    assert prompts == [RawPrompt(c, echo=True, suffix="z") for c in ("a", (7,))]
    assert [request.limits.max_tokens for request in served.host.requests] == [0, 0]


async def test_logprobs_of_an_echoed_prompt_come_first_and_the_first_is_null(
    served: Served,
) -> None:
    """What the vocabulary puts before every text is in the lists, and not in the text."""
    before = (TokenLogprob(b"Hi", -1.0, ((b"Ho", -0.5),)), TokenLogprob(b"!", -2.0, ()))
    served.host.script = lambda request: [
        Started(3, 4096),
        Prompted("Hi!", b"<s>", before, 3),
        Logprobs((TokenLogprob(b" you", -0.2, ()), TokenLogprob(b"</s>", -0.1, ()))),
        Text(" you"),
        finished(2),
    ]
    expected = {
        "tokens": ["<s>", "Hi", "!", " you", "</s>"],
        "token_logprobs": [None, -1.0, -2.0, -0.2, -0.1],
        "top_logprobs": [
            None,
            {"Ho": -0.5, "Hi": -1.0},
            {"!": -2.0},
            {" you": -0.2},
            {"</s>": -0.1},
        ],
        "text_offset": [0, 0, 2, 3, 7],
    }
    choice = (await served.complete(echo=True, logprobs=1)).json()["choices"][0]
    assert choice["text"] == "Hi! you"
    assert choice["logprobs"] == expected
    stream = await served.stream(PATH, echo=True, logprobs=1)
    assert stream.text() == "Hi! you"
    parts = [c["logprobs"] for c in stream.choices if c["logprobs"]]
    assert {key: parts[0][key] + parts[1][key] for key in expected} == expected


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt.0"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [1, -1]}, "prompt"),
    ({"prompt": ["a", None]}, "prompt.1"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": ["a"] * 257}, "prompt"),
    ({"prompt": ["a"] * 200, "n": 2}, "n"),
    ({"suffix": "x", "echo": True, "logprobs": 1}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"max_tokens": -1}, "max_tokens"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(case[0])[:60] for case in REFUSED])
async def test_a_wrong_field_is_named(served: Served, fields: dict[str, Any], param: str) -> None:
    reply = await served.complete(**fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert not served.host.requests


async def test_a_missing_prompt_is_named(served: Served) -> None:
    reply = await served.http.post(PATH, json={"model": MODEL})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "prompt"


async def test_a_format_constrains_here_too(served: Served) -> None:
    await served.complete(response_format={"type": "json_object"})
    assert served.host.requests[0].constraint == Constraint(ConstraintKind.JSON_OBJECT)


async def test_logprobs_have_the_older_shape(served: Served) -> None:
    tokens = (
        TokenLogprob(b"Hi", -0.5, ((b"Hi", -0.5), (b"Ho", -1.0))),
        TokenLogprob(b" you", -0.2, ()),
    )
    served.host.script = lambda request: [
        Started(5, 4096),
        Logprobs(tokens[:1]),
        Text("Hi"),
        Logprobs(tokens[1:]),
        Text(" you"),
        finished(2),
    ]
    expected = {
        "tokens": ["Hi", " you"],
        "token_logprobs": [-0.5, -0.2],
        "top_logprobs": [{"Hi": -0.5, "Ho": -1.0}, {" you": -0.2}],
        "text_offset": [0, 2],
    }
    reply = (await served.complete(logprobs=2)).json()
    assert reply["choices"][0]["logprobs"] == expected
    stream = await served.stream(PATH, logprobs=2)
    parts = [c["logprobs"] for c in stream.choices if c["logprobs"]]
    assert [part["text_offset"] for part in parts] == [[0], [2]]
    assert parts[0]["tokens"] + parts[1]["tokens"] == expected["tokens"]


async def test_a_stream_ends_with_usage_when_asked_for(served: Served) -> None:
    stream = await served.stream(PATH, stream_options={"include_usage": True})
    assert stream.chunks[-1]["choices"] == []
    assert stream.chunks[-1]["usage"]["completion_tokens"] == 2
    assert stream.data[-1] == "[DONE]"
    plain = await served.stream(PATH)
    assert all(chunk["choices"] for chunk in plain.chunks)


async def test_the_sdk_people_use_understands_it(served: Served) -> None:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as sdk:
        whole = await sdk.completions.create(model=MODEL, prompt="x", stop=["a"])
        assert whole.choices[0].text == "Hello there"
