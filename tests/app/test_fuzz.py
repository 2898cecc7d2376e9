"""Whatever a client sends, it is answered or refused, and never breaks the server."""

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.api.chat import ChatFields
from app.api.completions import CompletionFields
from app.server import create_app
from app.settings import Settings
from tests.app.conftest import chat_body
from tests.app.scripted import MODEL, ScriptedHost

FIELDS = sorted({*ChatFields.model_fields, *CompletionFields.model_fields} - {"model"})
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["user", "text", "assistant", "function", "json_schema", "auto", "{}"])
)
keys = st.sampled_from(["role", "content", "type", "text", "function", "name", "schema", "id", "1"])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=4)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@given(fields=bodies)
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_body_breaks_the_server(path: str, fields: dict[str, Any]) -> None:
    import asyncio
    import json

    async def send() -> httpx.Response:
        app = create_app(ScriptedHost(), Settings())
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            body = {**chat_body(), "model": MODEL, "prompt": "x", **fields}
            headers = {"content-type": "application/json"}
            return await http.post(path, content=json.dumps(body), headers=headers)

    reply = asyncio.run(send())
    assert reply.status_code in (200, 400), reply.text
    if reply.status_code == 400:
        assert reply.json()["error"]["message"]
