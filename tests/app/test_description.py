"""The API describes itself: what is told is what is read, and the page needs no other site."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from app.api.body import Body
from app.api.description import body_of, describe, error_of, operations
from app.api.examples import EXAMPLES, curl
from app.server import ROUTERS
from app.settings import Settings
from tests.app.conftest import Served, serving
from tests.app.scripted import MODEL

DOCUMENT = describe(route for room in ROUTERS for route in room.router.routes)
SCHEMAS = DOCUMENT["components"]["schemas"]
# They have nobody to fetch from here.
UNSERVED = {"/api/pull", "/api/delete"}


def bodies() -> Iterator[tuple[str, str, type[Body]]]:
    for room in ROUTERS:
        for route in room.router.routes:
            if (kind := body_of(route)) is not None:
                for method in route.methods:
                    yield method, route.path, kind


async def test_every_route_is_described_with_the_fields_it_reads(served: Served) -> None:
    told = (await served.http.get("/openapi.json")).json()
    assert told == DOCUMENT
    assert told["openapi"].startswith("3.1")
    for method, path, kind in bodies():
        body = told["paths"][path][method.lower()]["requestBody"]
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert set(SCHEMAS[name]["properties"]) == set(kind.model_fields)
        required = {key for key, field in kind.model_fields.items() if field.is_required()}
        assert set(SCHEMAS[name].get("required", [])) == required
    for _, path, operation in operations(told):
        ref = operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"]
        assert ref.endswith(error_of(path).__name__)
        assert operation["description"]


def test_every_route_that_is_posted_to_reads_its_body_as_described_fields() -> None:
    posted = {(m, p) for m, p, _ in operations(DOCUMENT) if m in ("POST", "DELETE")}
    nothing_to_read = {
        ("DELETE", "/v1/responses/{id}"),
        *(("POST", f"/api/{verb}") for verb in ("copy", "create", "push")),
    }
    assert posted - {(m, p) for m, p, _ in bodies()} <= nothing_to_read


def test_no_operation_shares_its_id() -> None:
    ids = [operation["operationId"] for _, _, operation in operations(DOCUMENT)]
    assert len(ids) == len(set(ids)) > 30


def test_references_lead_somewhere_and_bounds_are_json_schema_s() -> None:
    words: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                words.add(key)
                if key == "$ref":
                    assert value.rpartition("/")[2] in SCHEMAS
                walk(value)
        elif isinstance(node, list):
            for item in node:
                walk(item)

    walk(DOCUMENT)
    assert not words & {"ge", "gt", "le", "lt"}
    assert {"minimum", "maximum", "exclusiveMaximum"} <= words


@pytest.mark.parametrize(("method", "path"), sorted({(m, p) for m, p, _ in bodies()}))
async def test_every_body_has_an_example_that_is_answered(
    served: Served, method: str, path: str
) -> None:
    example = EXAMPLES[(method, path)]
    if path in UNSERVED:
        return
    if path == "/api/show":  # it reads a file, which the scripted host has none of
        return
    reply = await served.http.request(method, path, json={**example, "model": MODEL})
    assert reply.status_code == 200, reply.text


# An item of each field that is a list of objects, with all that it may have.
CALL = {"id": "a", "function": {"name": "fold", "arguments": "{}"}}
TURN = {"role": "assistant", "content": "Hi", "reasoning_content": "a", "tool_call_id": "a"}
ITEMS: dict[str, dict[str, dict[str, Any]]] = {
    "/v1/chat/completions": {
        "messages": {**TURN, "name": "a", "tool_calls": [CALL]},
        "tools": {"type": "function", "function": {"name": "fold"}},
    },
    "/v1/messages": {
        "messages": {"role": "user", "content": "Hi"},
        "tools": {"name": "fold", "description": "a", "input_schema": {}, "defer_loading": False},
    },
}
ITEMS["/api/chat"] = ITEMS["/v1/chat/completions"]


@pytest.mark.parametrize(("path", "field"), [(p, f) for p, fs in ITEMS.items() for f in fs])
async def test_items_are_described_as_they_are_read(served: Served, path: str, field: str) -> None:
    body = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    listed = SCHEMAS[body["$ref"].rpartition("/")[2]]["properties"][field]
    listed = next(o for o in listed.get("anyOf", [listed]) if o.get("type") == "array")
    told, item = listed["items"], ITEMS[path][field]
    assert set(told["required"]) <= set(item) <= set(told["properties"])

    async def status(**changed: Any) -> int:
        whole = {key: value for key, value in (item | changed).items() if value is not ...}
        example = {**EXAMPLES[("POST", path)], "model": MODEL, field: [whole]}
        return (await served.http.post(path, json=example)).status_code

    assert await status() == 200
    for key in told["required"]:
        assert await status(**{key: ...}) == 400, key
    for key, schema in told["properties"].items():
        for value in schema.get("enum", []):
            assert await status(**{key: value}) == 200, (key, value)
        if key != "defer_loading":  # what is no true is no
            assert await status(**{key: 5}) == 400, key


class Page(HTMLParser):
    """The page's tags, and what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links |= {value or "" for key, value in attrs if key in ("href", "src")}


async def test_the_page_runs_and_fetches_nothing(served: Served) -> None:
    reply = await served.http.get("/docs")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    page = Page(reply.text)
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert page.links == {"/openapi.json"}
    for _, path, _ in operations(DOCUMENT):
        assert f"<code>{path}</code>" in reply.text
    for field in ("max_completion_tokens", "previous_response_id", "stop_sequences", "keep_alive"):
        assert f"<code>{field}</code>" in reply.text
    assert served.url in reply.text
    assert "list of {role, content}" in reply.text


async def test_the_page_needs_no_key_and_tells_nothing_of_the_machine() -> None:
    async with serving(settings=Settings(port=0, api_key="secret")) as served:
        for path in ("/docs", "/openapi.json"):
            reply = await served.http.get(path)
            assert reply.status_code == 200
            assert MODEL not in reply.text
            assert "secret" not in reply.text
        assert (await served.http.get("/v1/models")).status_code == 401


def test_an_example_can_be_pasted_into_a_shell() -> None:
    command = curl("http://here", "POST", "/tokenize", {"prompt": "it's"})
    assert re.fullmatch(r"curl http://here/tokenize -H '[^']+' \\\n  -d '.+'", command, re.DOTALL)
    assert "'\"'\"'" in command
