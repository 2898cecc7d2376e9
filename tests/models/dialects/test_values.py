"""Values: JSON as it comes, Python's literals, and what a schema makes of a text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.dialects.jsonscan import JsonScanner
from models.dialects.literals import PYTHON, Balance, braces, keywords, literal, mapping
from models.dialects.values import dumped, property_schema, typed

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


def scanned(text: str, size: int) -> tuple[str, JsonScanner, int]:
    """What a scanner makes of a text in pieces, and how far it went."""
    scanner, seen, at, out = JsonScanner(), "", 0, ""
    for start in range(0, len(text), size):
        seen += text[start : start + size]
        at = scanner.scan(seen, at)
        out += scanner.take()
    at = scanner.finish(at)
    return out + scanner.take(), scanner, at


@given(anything, st.integers(1, 5), st.sampled_from([None, 2]), st.booleans())
def test_json_passes_as_it_is(value: object, size: int, indent: int | None, plain: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    out, scanner, at = scanned(text, size)
    assert scanner.done
    assert (out, at) == (text, len(text))


@pytest.mark.parametrize(
    ("text", "out", "rest"),
    [
        ('{"a": 1} and', '{"a": 1}', " and"),
        ('{"a" 1}', '{"a" ', "1}"),
        ("[1, nope]", "[1, ", "nope]"),
        ("[01]", "[", "01]"),
        ('{"a": 1]', '{"a": 1', "]"),
        ("[1,]", "[1,", "]"),
        ("{'a': 1}", "{", "'a': 1}"),
        ("hello", "", "hello"),
    ],
)
def test_what_is_no_json_is_seen_where_it_stops_being_so(text: str, out: str, rest: str) -> None:
    for size in (1, 3, 100):
        found, _, at = scanned(text, size)
        assert (found, text[at:]) == (out, rest)


def test_what_json_forbids_in_strings_is_escaped() -> None:
    out, scanner, _ = scanned('["a\n\t\x01", "\\d\\\'", True, None]', 1)
    assert scanner.done
    assert json.loads(out) == ["a\n\t\x01", "\\d'", True, None]


@given(anything)
def test_pythons_literals_are_read_as_python_reads_them(value: object) -> None:
    if value is not None:
        assert literal(repr(value)) == value


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), anything, max_size=4))
def test_keywords_are_read_to_their_bracket(arguments: dict[str, object]) -> None:
    text = "(" + ", ".join(f"{k}={v!r}" for k, v in arguments.items()) + ")"
    balance, seen, at, closed = Balance(PYTHON), "", 0, False
    for char in text + " rest)":
        seen += char
        if not closed:
            at, closed = balance.scan(seen, at, ended=False)
    assert closed
    assert text == seen[:at]
    assert keywords(text, []) == arguments


@pytest.mark.parametrize(
    "text", ["(a)", "(a=b)", "(a=1", "(a==1)", "(a=f())", "(a=1) x", "(a=1e999)"]
)
def test_what_is_no_literal_is_refused(text: str) -> None:
    assert keywords(text, []) is None


def test_braces_take_bare_keys_and_values() -> None:
    style = braces(("<escape>",))
    text = '{a:<escape>x, "}<escape>,b: two words ,"c":[1,-2.5,{d:null}],e:<escape><escape>}'
    assert mapping(text, style) == {
        "a": 'x, "}',
        "b": "two words",
        "c": [1, -2.5, {"d": None}],
        "e": "",
    }
    assert mapping("{a:<escape>x}", style) is None


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        ("5", {"type": "integer"}, 5),
        ("5.5", {"type": "integer"}, "5.5"),
        ("True", {"type": "boolean"}, True),
        ("null", {"type": ["string", "null"]}, None),
        ("nullable", {"type": ["string", "null"]}, "nullable"),
        ("{'a': None}", {"type": "object"}, {"a": None}),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ("[1", {"type": "array"}, "[1"),
        ("2", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {}, 2),
        ("two", {}, "two"),
        ("2", None, 2),
        ("None", None, "None"),
        ("1e999", {"type": "number"}, "1e999"),
        ("NaN", {"type": "number"}, "NaN"),
    ],
)
def test_a_value_has_the_type_that_the_schema_gives_it(
    text: str, schema: dict[str, object] | None, value: object
) -> None:
    assert typed(text, schema) == json.dumps(value)


def test_a_reference_is_followed_within_the_schema() -> None:
    parameters = {
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#/$defs/b"}},
        "$defs": {"n": {"type": "integer"}, "b": {"$ref": "#/$defs/b"}},
    }
    assert property_schema(parameters, "a") == {"type": "integer"}
    assert typed("1", property_schema(parameters, "b")) == "1"


def test_half_a_surrogate_pair_stays_an_escape() -> None:
    assert dumped(["\ud83d", "é"]) == '["\\ud83d", "\\u00e9"]'
    dumped("é").encode()
