"""Reasoning that clients carry for us: it comes back whole, or not at all."""

import base64
import stat
from pathlib import Path
from typing import Any

import pytest

from app.api.responses.sealed import Seal
from app.settings import Settings
from models.chat import Conversation, Reasoning, Role, Started, Text
from tests.app.conftest import Served, serving
from tests.app.scripted import MODEL, ScriptedHost, finished

PATH = "/v1/responses"
THOUGHT = "First the corners: ü, \U0001f600."
ASK = {"role": "user", "content": "Fold it."}


def host() -> ScriptedHost:
    return ScriptedHost(
        lambda _: [Started(5, 4096), Reasoning(THOUGHT), Text("Folded."), finished(3)]
    )


async def answered(served: Served, **fields: Any) -> dict[str, Any]:
    body = {
        "model": MODEL,
        "input": [ASK],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    reply = await served.http.post(PATH, json={**body, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def thoughts(served: Served) -> list[str | None]:
    prompt = served.host.requests[-1].prompt
    assert isinstance(prompt, Conversation)
    return [m.reasoning for m in prompt.messages if m.role is Role.ASSISTANT]


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def settings(folder: Path) -> Settings:
    # Nothing is recalled here: what comes back, the client has brought.
    return Settings(port=0, state_dir=folder, canonical_prompts=False)


async def test_a_sealed_thought_comes_back_after_a_restart(tmp_path: Path) -> None:
    async with serving(host(), settings(tmp_path)) as served:
        thought, message = (await answered(served))["output"]
    assert THOUGHT not in thought["encrypted_content"]
    carried = {"type": "reasoning", "id": thought["id"], "summary": []}
    carried["encrypted_content"] = thought["encrypted_content"]
    async with serving(host(), settings(tmp_path)) as served:
        await answered(served, input=[ASK, carried, message, ASK])
        assert thoughts(served) == [THOUGHT]
    (key,) = files_in(tmp_path)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


async def test_what_was_altered_or_is_another_s_is_ignored_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(host(), settings(tmp_path)) as served:
        thought, message = (await answered(served))["output"]
        word: str = thought["encrypted_content"]
        swapped = "A" if word[20] != "A" else "B"
        for wrong in (word[:20] + swapped + word[21:], word[:-8], "gAAAAABo", "r1.", "r1.%%", ""):
            carried = {"type": "reasoning", "summary": [], "encrypted_content": wrong}
            await answered(served, input=[ASK, carried, message, ASK])
            assert thoughts(served) == [None], wrong
    assert caplog.text.count("is ignored (said once)") == 1


async def test_it_comes_when_asked_for_streamed_too(tmp_path: Path) -> None:
    async with serving(host(), settings(tmp_path)) as served:
        plain = await answered(served, include=[])
        assert "encrypted_content" not in plain["output"][0]
        reply = await served.http.post(
            PATH,
            json={
                "model": MODEL,
                "input": "Hi",
                "stream": True,
                "include": ["reasoning.encrypted_content"],
            },
        )
        assert reply.text.count('"encrypted_content":"r1.') == 3  # added, done, completed


def test_no_word_is_believed_without_its_signature() -> None:
    seal, other = Seal(), Seal()
    word = seal.close("a" * 10000)
    assert len(word) < 200
    assert seal.open(word) == "a" * 10000
    assert other.open(word) is None
    forged = base64.urlsafe_b64encode(b"\0" * 32 + b"anything").decode()
    assert seal.open(f"r1.{forged}") is None


def test_a_folder_that_cannot_be_written_costs_only_the_restart(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seal = Seal(tmp_path / "file")
    assert seal.open(seal.close("a")) == "a"


async def test_input_tokens_are_counted_as_the_prompt_has_them(tmp_path: Path) -> None:
    async with serving(host(), settings(tmp_path)) as served:
        reply = await served.http.post(
            f"{PATH}/input_tokens", json={"model": MODEL, "input": [ASK], "instructions": "Now."}
        )
    assert reply.json() == {
        "object": "response.input_tokens",
        "input_tokens": len("Fold it.") + len("Now."),
    }
