"""Responses that are kept for an hour: asked for again, continued, referred to, and forgotten."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.api.responses.fields import ResponseFields
from app.api.responses.routes import Memory
from app.api.responses.store import ResponseStore, Stored
from app.server import create_app
from app.settings import Settings
from models.chat import Conversation
from tests.app.fuzzing import plain as values
from tests.app.scripted import MODEL, ScriptedHost

PATH = "/v1/responses"
HOUR = 3600.0


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Remembering:
    """A server whose clock is ours."""

    http: httpx.AsyncClient
    host: ScriptedHost
    clock: Clock

    async def create(self, **fields: Any) -> dict[str, Any]:
        reply = await self.http.post(PATH, json={"model": MODEL, "input": "Hi", **fields})
        assert reply.status_code == 200, reply.text
        if not fields.get("stream"):
            return reply.json()
        return json.loads(reply.text.strip().split("\n")[-1].removeprefix("data: "))["response"]

    async def get(self, id: str, more: str = "") -> httpx.Response:
        return await self.http.get(f"{PATH}/{id}{more}")

    def heard(self) -> list[tuple[str, str]]:
        """Roles and words of the last request."""
        prompt = self.host.requests[-1].prompt
        assert isinstance(prompt, Conversation)
        return [(message.role.value, message.content) for message in prompt.messages]


@contextlib.asynccontextmanager
async def remembering(**limits: int) -> AsyncGenerator[Remembering]:
    host, clock = ScriptedHost(), Clock()
    app = create_app(host, Settings())
    app.state.responses = Memory(ResponseStore(clock, **limits))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        yield Remembering(http, host, clock)


@pytest.fixture
async def server() -> AsyncGenerator[Remembering]:
    async with remembering() as one:
        yield one


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_can_be_asked_for_again_and_forgotten(
    server: Remembering, stream: bool
) -> None:
    response = await server.create(stream=stream)
    assert (await server.get(response["id"])).json() == response
    deleted = await server.http.delete(f"{PATH}/{response['id']}")
    assert deleted.json() == {"id": response["id"], "object": "response", "deleted": True}
    for gone in (
        await server.get(response["id"]),
        await server.get(response["id"], "/input_items"),
        await server.http.delete(f"{PATH}/{response['id']}"),
    ):
        assert gone.status_code == 404
        assert response["id"] in gone.json()["error"]["message"]


async def test_what_is_not_to_be_stored_is_not(server: Remembering) -> None:
    response = await server.create(store=False)
    assert response["store"] is False
    assert (await server.get(response["id"])).status_code == 404


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_goes_on_where_the_previous_one_ended(
    server: Remembering, stream: bool
) -> None:
    first = await server.create(instructions="Be brief.", stream=stream)
    second = await server.create(previous_response_id=first["id"], input="More", stream=stream)
    assert second["previous_response_id"] == first["id"]
    third = await server.create(
        previous_response_id=second["id"], instructions="Be long.", input="Still more"
    )
    assert server.heard() == [  # instructions are those of the request alone
        ("system", "Be long."),
        ("user", "Hi"),
        ("assistant", "Hello there"),
        ("user", "More"),
        ("assistant", "Hello there"),
        ("user", "Still more"),
    ]
    await server.create(previous_response_id=first["id"], input="A fork")
    assert [words for _, words in server.heard()] == ["Hi", "Hello there", "A fork"]
    await server.create(previous_response_id=third["id"], input=None)
    assert len(server.heard()) == 6


async def test_an_unknown_previous_response_is_told_by_its_code(server: Remembering) -> None:
    body = {"model": MODEL, "input": "Hi", "previous_response_id": "resp_9"}
    for stream in (False, True):
        reply = await server.http.post(PATH, json=body | {"stream": stream})
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert error["code"] == "previous_response_not_found"
        assert error["param"] == "previous_response_id"
        assert "resp_9" in error["message"]


async def test_an_hour_after_its_last_use_a_response_is_gone(server: Remembering) -> None:
    first, other = await server.create(), await server.create()
    server.clock.now += HOUR - 1
    second = await server.create(previous_response_id=first["id"])
    server.clock.now += 2
    assert (await server.get(other["id"])).status_code == 404
    assert (await server.get(first["id"])).status_code == 200
    server.clock.now += HOUR - 3
    await server.create(previous_response_id=second["id"])  # keeps what it builds on, too
    server.clock.now += HOUR - 1
    assert (await server.get(first["id"])).status_code == 200
    server.clock.now += 1
    assert (await server.get(first["id"])).status_code == 404


async def test_without_its_beginning_a_response_cannot_go_on(server: Remembering) -> None:
    first = await server.create()
    second = await server.create(previous_response_id=first["id"])
    await server.http.delete(f"{PATH}/{first['id']}")
    body = {"model": MODEL, "input": "Hi", "previous_response_id": second["id"]}
    reply = await server.http.post(PATH, json=body)
    assert reply.json()["error"]["code"] == "previous_response_not_found"


async def test_memory_is_bounded_and_the_least_used_goes_first() -> None:
    async with remembering(max_responses=3) as server:
        first, other, second = [await server.create() for _ in range(3)]
        await server.create(previous_response_id=first["id"])
        here = [(await server.get(r["id"])).status_code for r in (first, other, second)]
        assert here == [200, 404, 200]
    async with remembering(max_bytes=20_000) as server:
        kept = [await server.create(input="x" * 5000) for _ in range(4)]
        here = [(await server.get(r["id"])).status_code for r in kept]
        assert here[0] == 404
        assert here[-1] == 200
        huge = await server.create(input="x" * 30_000)
        assert (await server.get(huge["id"])).status_code == 404
        assert (await server.get(kept[-1]["id"])).status_code == 200


async def test_an_item_can_be_referred_to_by_its_id(server: Remembering) -> None:
    mine = {"id": "msg_mine", "role": "user", "content": "Mine"}
    (said,) = (await server.create(input=[mine]))["output"]
    again = [{"type": "item_reference", "id": "msg_mine"}, {"id": said["id"]}]
    await server.create(input=[*again, {"role": "user", "content": "And?"}])
    wanted = [("user", "Mine"), ("assistant", "Hello there"), ("user", "And?")]
    assert server.heard() == wanted


async def test_input_items_are_listed_in_pages(server: Remembering) -> None:
    first = await server.create(input=[{"role": "user", "content": f"{i}"} for i in range(3)])
    items = [{"role": "assistant", "content": "x"}, {"type": "odd"}]
    second = await server.create(previous_response_id=first["id"], input=items)
    everything = (await server.get(second["id"], "/input_items?order=asc")).json()
    kinds = [(item["type"], item.get("role")) for item in everything["data"]]
    said = ("message", "assistant")
    assert kinds == [*[("message", "user")] * 3, said, said, ("odd", None)]
    assert everything["data"][0]["content"] == [{"type": "input_text", "text": "0"}]
    assert everything["data"][4]["content"][0]["type"] == "output_text"
    assert len({item["id"] for item in everything["data"]}) == 6
    assert everything["has_more"] is False
    page = (await server.get(second["id"], "/input_items?limit=4")).json()
    assert page["has_more"] is True
    assert page["first_id"] == everything["last_id"]
    more = f"/input_items?limit=4&after={page['last_id']}"
    rest = (await server.get(second["id"], more)).json()
    assert rest["last_id"] == everything["first_id"]
    assert rest["has_more"] is False
    for wrong in ("limit=0", "limit=101", "limit=x", "order=up", "after=nobody"):
        assert (await server.get(second["id"], f"/input_items?{wrong}")).status_code == 400


async def test_a_finished_response_cannot_be_streamed(server: Remembering) -> None:
    response = await server.create()
    assert (await server.get(response["id"], "?stream=true")).status_code == 400


def test_an_item_outlives_the_response_that_named_it_first() -> None:
    clock = Clock()
    store = ResponseStore(clock)
    item = {"id": "msg_1", "type": "message"}
    store.put(Stored({"id": "a", "output": []}, (item,)))
    store.put(Stored({"id": "b", "output": []}, (item,)))
    assert store.forget("a")
    assert store.item("msg_1") == item
    assert store.forget("b")
    assert store.item("msg_1") is None
    assert not store.forget("b")


FIELDS = sorted({*ResponseFields.model_fields} - {"model"})
KINDS = ["message", "reasoning", "function_call", "custom_tool_call", "function_call_output"]
KINDS += ["item_reference", "function", "custom", "namespace", "allowed_tools", "odd"]
ITEM = {
    "type": st.sampled_from(KINDS),
    "role": st.sampled_from(["user", "assistant", "developer", "x"]),
    **dict.fromkeys(("content", "id", "call_id", "name", "arguments", "output"), values),
    **dict.fromkeys(("input", "summary", "status", "tools", "format", "namespace"), values),
}
items = st.lists(st.fixed_dictionaries({}, optional=ITEM) | values, max_size=3)
bodies = st.dictionaries(st.sampled_from(FIELDS), values | items, max_size=4)


@given(fields=bodies, input=items, tools=items)
@settings(max_examples=200, deadline=None)
def test_no_body_breaks_the_server(fields: dict[str, Any], input: Any, tools: Any) -> None:
    async def send() -> None:
        async with remembering() as server:
            headers = {"content-type": "application/json"}
            body = {"model": MODEL, "input": input or "Hi", "tools": tools, **fields}
            reply = await server.http.post(PATH, content=json.dumps(body), headers=headers)
            assert reply.status_code in (200, 400), reply.text
            if reply.status_code == 400:
                assert reply.json()["error"]["message"]
            elif not body.get("stream") and (response := reply.json())["store"]:
                listed = await server.get(response["id"], "/input_items")
                assert listed.status_code == 200

    asyncio.run(send())
