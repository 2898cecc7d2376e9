"""The shape an answer must have, in each spelling in use, and whose turn comes first."""

from typing import Any

import pytest

from models.chat import Constraint, ConstraintKind, Priority
from tests.app.conftest import Served
from tests.app.test_chat import asked, refused

SCHEMA = {"type": "object", "properties": {"b": {"const": 1}, "a": {"const": "ü"}}}
SCHEMA_TEXT = '{"type": "object", "properties": {"b": {"const": 1}, "a": {"const": "ü"}}}'
FORMATS: list[tuple[dict[str, Any], Constraint | None]] = [
    ({"type": "text"}, None),
    ({"type": "json_object"}, Constraint(ConstraintKind.JSON_OBJECT)),
    (
        {"type": "json_object", "schema": SCHEMA},
        Constraint(ConstraintKind.JSON_SCHEMA, SCHEMA_TEXT),
    ),
    (
        {"type": "json_schema", "json_schema": {"name": "f", "strict": True, "schema": SCHEMA}},
        Constraint(ConstraintKind.JSON_SCHEMA, SCHEMA_TEXT),
    ),
    (
        {"type": "json_schema", "schema": SCHEMA},
        Constraint(ConstraintKind.JSON_SCHEMA, SCHEMA_TEXT),
    ),
]


@pytest.mark.parametrize(("format", "constraint"), FORMATS)
async def test_each_spelling_of_a_format_constrains(
    served: Served, format: dict[str, Any], constraint: Constraint | None
) -> None:
    assert (await asked(served, response_format=format)).constraint == constraint


SHAPES: list[tuple[dict[str, Any], Constraint]] = [
    ({"grammar": 'root ::= "a"'}, Constraint(ConstraintKind.GRAMMAR, 'root ::= "a"')),
    ({"guided_grammar": 'start: "a"'}, Constraint(ConstraintKind.GRAMMAR, 'start: "a"')),
    ({"json_schema": SCHEMA}, Constraint(ConstraintKind.JSON_SCHEMA, SCHEMA_TEXT)),
    ({"guided_json": SCHEMA}, Constraint(ConstraintKind.JSON_SCHEMA, SCHEMA_TEXT)),
    ({"guided_regex": "a+"}, Constraint(ConstraintKind.REGEX, "a+")),
    ({"guided_choice": ["a.b", "c"]}, Constraint(ConstraintKind.REGEX, r"a\.b|c")),
]


@pytest.mark.parametrize(("fields", "constraint"), SHAPES, ids=[next(iter(f)) for f, _ in SHAPES])
async def test_other_servers_names_for_a_shape_are_understood(
    served: Served, fields: dict[str, Any], constraint: Constraint
) -> None:
    assert (await asked(served, **fields)).constraint == constraint


async def test_two_shapes_at_once_are_refused(served: Served) -> None:
    error = await refused(served, grammar='root ::= "a"', guided_regex="a")
    assert error["param"] == "guided_regex"


async def test_work_that_may_wait_says_so(served: Served) -> None:
    assert (await asked(served)).priority is Priority.INTERACTIVE
    assert (await asked(served, priority="batch")).priority is Priority.BATCH
    assert (await asked(served, service_tier="flex")).priority is Priority.BATCH
    assert (await asked(served, service_tier="auto")).priority is Priority.INTERACTIVE
    assert (await refused_priority(served))["param"] == "priority"


async def refused_priority(served: Served) -> dict[str, Any]:
    reply = await served.chat(priority="urgent")
    assert reply.status_code == 400
    return reply.json()["error"]
