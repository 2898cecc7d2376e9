"""Tokens of a text and back, in the words of two servers whose clients we serve."""

from dataclasses import replace
from typing import Any

import pytest

from app.api import tokens
from models.chat import Conversation, Tool
from runtimes.base import LoadState
from tests.app.conftest import Served
from tests.app.scripted import MODEL

HI = [ord("H"), ord("i")]
BOS = 1
USER = {"role": "user", "content": "Hi"}


async def post(served: Served, path: str, **fields: Any) -> dict[str, Any]:
    reply = await served.http.post(path, json=fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def refused(served: Served, path: str, **fields: Any) -> str:
    reply = await served.http.post(path, json=fields)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]["param"]


async def test_a_prompt_is_tokenized_as_it_would_be_read(served: Served) -> None:
    answer = await post(served, "/tokenize", model=MODEL, prompt="Hi")
    assert answer == {"count": 3, "max_model_len": 4096, "tokens": [BOS, *HI]}


async def test_what_starts_a_text_can_be_left_out(served: Served) -> None:
    answer = await post(served, "/tokenize", model=MODEL, prompt="Hi", add_special_tokens=False)
    assert (answer["tokens"], answer["count"]) == (HI, 2)
    answer = await post(served, "/tokenize", model=MODEL, prompt="", add_special_tokens=False)
    assert (answer["tokens"], answer["count"]) == ([], 0)


async def test_a_conversation_is_tokenized_as_its_prompt(served: Served) -> None:
    args = {"enable_thinking": True}
    tool = {"type": "function", "function": {"name": "f"}}
    fields = {
        "messages": [USER],
        "tools": [tool],
        "chat_template_kwargs": args,
    }
    answer = await post(served, "/tokenize", model=MODEL, **fields)
    assert answer["tokens"] == HI
    prompt = served.host.requests[-1].prompt
    assert isinstance(prompt, Conversation)
    assert prompt.tools == (Tool("f", "", {"type": "object", "properties": {}}),)
    assert prompt.template_args == {"enable_thinking": True}


async def test_the_pieces_can_be_shown(served: Served) -> None:
    answer = await post(served, "/tokenize", model=MODEL, prompt="Hé", return_token_strs=True)
    assert answer["token_strs"][1:] == ["H", "é"]


async def test_the_other_server_s_words_are_understood(served: Served) -> None:
    assert await post(served, "/tokenize", content="Hi") == {"tokens": HI}
    answer = await post(served, "/tokenize", content="<s>Hi", add_special=True)
    assert answer == {"tokens": [BOS, 2, *HI]}
    answer = await post(served, "/tokenize", content="<s>", parse_special=False)
    assert answer == {"tokens": [ord(char) for char in "<s>"]}
    answer = await post(served, "/tokenize", content="Hi", with_pieces=True)
    assert answer == {"tokens": [{"id": HI[0], "piece": "H"}, {"id": HI[1], "piece": "i"}]}


async def test_half_a_character_is_shown_as_its_bytes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(tokens: list[int]) -> list[bytes]:
        return [b"\xc3", b"\xa9"]

    monkeypatch.setattr(served.host.tokens_are, "pieces", halves)
    answer = await post(served, "/tokenize", content="ab", with_pieces=True)
    assert [item["piece"] for item in answer["tokens"]] == [[0xC3], [0xA9]]
    assert (await post(served, "/detokenize", tokens=[1, 2]))["prompt"] == "é"


async def test_tokens_become_text_again(served: Served) -> None:
    answer = await post(served, "/detokenize", model=MODEL, tokens=HI)
    assert answer == {"prompt": "Hi", "content": "Hi"}
    assert (await post(served, "/detokenize", model=MODEL, tokens=[]))["prompt"] == ""


async def test_a_tokenizer_tells_about_itself(served: Served) -> None:
    for query in ({}, {"model": MODEL}):
        info = (await served.http.get("/tokenizer_info", params=query)).json()
        assert (info["bos_token"], info["eos_token"]) == ("<s>", "</s>")
        assert info["add_bos_token"] is True
        assert (info["vocab_size"], info["model_max_length"]) == (300, 4096)
        assert info["chat_template"] == "{{ messages }}"
    missing = await served.http.get("/tokenizer_info", params={"model": "no"})
    assert missing.status_code == 404


async def test_the_model_that_is_loaded_is_meant_where_none_is_named(served: Served) -> None:
    assert (await post(served, "/tokenize", prompt="Hi"))["count"] == 3
    both = served.host.infos
    served.host.infos = [replace(info, state=LoadState.READY) for info in both]
    assert await refused(served, "/tokenize", prompt="Hi") == "model"
    served.host.infos = [replace(info, state=LoadState.ABSENT) for info in both]
    assert await refused(served, "/detokenize", tokens=[1]) == "model"
    served.host.infos = served.host.infos[:1]
    assert (await post(served, "/tokenize", prompt="Hi"))["count"] == 3


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "a", "content": "a"}, "prompt"),
    ("/tokenize", {"prompt": ["a"]}, "prompt"),
    ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
    ("/tokenize", {"messages": []}, "messages"),
    ("/tokenize", {"messages": [USER], "add_generation_prompt": False}, "add_generation_prompt"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": "a"}, "tokens"),
    ("/detokenize", {"tokens": [1, -1]}, "tokens.1"),
    ("/detokenize", {"tokens": [True]}, "tokens.0"),
    ("/detokenize", {"tokens": [2**31]}, "tokens.0"),
]


@pytest.mark.parametrize(("path", "fields", "param"), REFUSED)
async def test_what_is_wrong_is_named(
    served: Served, path: str, fields: dict[str, Any], param: str
) -> None:
    assert await refused(served, path, model=MODEL, **fields) == param


async def test_a_text_that_would_keep_others_waiting_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_TEXT", 10)
    assert await refused(served, "/tokenize", model=MODEL, prompt="x" * 11) == "prompt"
    assert await refused(served, "/tokenize", model=MODEL, content="x" * 11) == "content"
