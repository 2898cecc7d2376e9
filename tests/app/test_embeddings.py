"""Embeddings, in OpenAI's dialect and in Ollama's two."""

import base64
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.app.conftest import Served, until
from tests.app.scripted import MODEL

PATH = "/v1/embeddings"


async def post(served: Served, path: str, **body: Any) -> httpx.Response:
    return await served.http.post(path, json={"model": MODEL, **body})


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("abc", ("abc",)),
        (["abc", "d"], ("abc", "d")),
        ([1, 2, 3], ((1, 2, 3),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
    ],
)
async def test_each_form_of_an_input(served: Served, given: Any, texts: tuple[Any, ...]) -> None:
    reply = await post(served, PATH, input=given)
    assert reply.status_code == 200, reply.text
    assert served.host.embedded == [texts]
    told = reply.json()
    assert (told["object"], told["model"]) == ("list", MODEL)
    assert [item["index"] for item in told["data"]] == list(range(len(texts)))
    tokens = sum(map(len, texts))
    assert told["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


async def test_vectors_have_length_1_also_when_they_are_shortened(served: Served) -> None:
    (whole,) = (await post(served, PATH, input="abc")).json()["data"]
    assert whole["embedding"] == pytest.approx([0.6, 0.8, 0, 0])
    (short,) = (await post(served, PATH, input="abc", dimensions=1)).json()["data"]
    assert short["embedding"] == pytest.approx([1])
    reply = await post(served, PATH, input="abc", dimensions=5)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "dimensions"


async def test_base64_holds_the_same_numbers(served: Served) -> None:
    """Which OpenAI's own SDK asks for, and decodes."""
    reply = await post(served, PATH, input="abc", encoding_format="base64")
    (item,) = reply.json()["data"]
    raw = base64.b64decode(item["embedding"])
    assert np.frombuffer(raw, "<f4").tolist() == pytest.approx([0.6, 0.8, 0, 0])
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="any") as sdk:
        made = await sdk.embeddings.create(model=MODEL, input=["abc", "abc"])
        assert [item.embedding for item in made.data] == [pytest.approx([0.6, 0.8, 0, 0])] * 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "input"),
    ({"input": ""}, "input"),
    ({"input": []}, "input"),
    ({"input": ["a", ""]}, "input.1"),
    ({"input": ["a", None]}, "input.1"),
    ({"input": [True]}, "input"),
    ({"input": ["a"] * 2049}, "input"),
    ({"input": "a", "dimensions": 0}, "dimensions"),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=[str(case[0])[:60] for case in REFUSED])
async def test_a_wrong_field_is_named(served: Served, fields: dict[str, Any], param: str) -> None:
    reply = await post(served, PATH, **fields)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert not served.host.embedded


async def test_a_model_that_is_not_here_is_404_in_each_dialect(served: Served) -> None:
    for path, field in ((PATH, "input"), ("/api/embed", "input"), ("/api/embeddings", "prompt")):
        reply = await post(served, path, **{"model": "nobody", field: "a"})
        assert reply.status_code == 404, path


async def test_ollama_cuts_what_is_too_long_unless_it_is_told_not_to(served: Served) -> None:
    told = (await post(served, "/api/embed", input=["abc", "d"])).json()
    assert told["embeddings"] == [
        pytest.approx([3 / 13, 4 / 13, 0, 12 / 13]),
        pytest.approx(np.array([1, 4, 0, 12]) / np.sqrt(161)),
    ]
    assert told["prompt_eval_count"] == 4
    assert told["total_duration"] >= told["load_duration"] > 0
    whole = (await post(served, "/api/embed", input="abc", truncate=False, dimensions=2)).json()
    assert whole["embeddings"] == [pytest.approx([0.6, 0.8])]
    assert served.host.loads == [MODEL, MODEL]


async def test_ollama_loads_a_model_for_an_empty_input(served: Served) -> None:
    assert (await post(served, "/api/embed")).json()["embeddings"] == []
    assert (await post(served, "/api/embeddings", prompt="")).json() == {"embedding": []}
    assert served.host.loads == [MODEL, MODEL]


async def test_ollamas_older_vectors_keep_their_length(served: Served) -> None:
    told = (await post(served, "/api/embeddings", prompt="abc")).json()
    assert told == {"embedding": [3, 4, 0, 12]}


async def test_a_client_that_leaves_stops_the_work(served: Served) -> None:
    served.host.embed_s = 30
    with pytest.raises(httpx.ReadTimeout):
        await served.http.post(PATH, json={"model": MODEL, "input": "a"}, timeout=0.3)
    await until(lambda: served.host.cancelled == 1)
