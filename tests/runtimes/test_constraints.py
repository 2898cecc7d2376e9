"""Answers that must have a shape."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from models.chat import Constraint, ConstraintKind
from models.errors import RequestInvalid
from runtimes.constraints import ConstraintCompiler, forbid
from runtimes.messages import Vocab

END = 256
VOCAB = Vocab(
    pieces=(*(bytes([i]) for i in range(256)), b"<end>", b'{"', b"true"),
    end_ids=frozenset({END}),
    control_ids=frozenset({END}),
    bos_id=-1,
    eos_id=END,
    bos_text="",
    eos_text="<end>",
    adds_bos=False,
)


@pytest.fixture(scope="module")
def compiler() -> ConstraintCompiler:
    return ConstraintCompiler(VOCAB)


def written(compiler: ConstraintCompiler, constraint: Constraint, seed: int) -> str:
    """What a model of random taste writes under a constraint."""
    rng = np.random.default_rng(seed)
    mask, out = compiler.compile(constraint), b""
    for _ in range(400):
        row = rng.standard_normal(len(VOCAB.pieces)).astype(np.float32)
        row[END] += 2
        mask.apply(row)
        token = int(row.argmax())
        assert np.isfinite(row[token])
        if token != END:
            out += VOCAB.pieces[token]
        if not mask.accept(token) or token == END:
            return out.decode()
    return out.decode()


SCHEMA = {
    "type": "object",
    "properties": {"tone": {"enum": ["calm", "loud"]}, "level": {"type": "integer"}},
    "required": ["tone", "level"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("seed", range(5))
def test_random_taste_still_writes_what_the_schema_wants(
    compiler: ConstraintCompiler, seed: int
) -> None:
    schema = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA))
    value = json.loads(written(compiler, schema, seed))
    assert value["tone"] in ("calm", "loud")
    assert isinstance(value["level"], int)


def test_white_space_cannot_go_on_for_ever(compiler: ConstraintCompiler) -> None:
    mask = compiler.compile(Constraint(ConstraintKind.JSON_OBJECT))
    mask.accept(ord("{"))
    for _ in range(41):
        row = np.zeros(len(VOCAB.pieces), np.float32)
        mask.apply(row)
        if not np.isfinite(row[ord(" ")]):
            return
        mask.accept(ord(" "))
    raise AssertionError("spaces without end were allowed")


def test_regular_expressions_are_kept(compiler: ConstraintCompiler) -> None:
    assert written(compiler, Constraint(ConstraintKind.REGEX, "ab?c"), 1) in ("ac", "abc")


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a" item* "."\nitem ::= "b" | "c"',
        'start: "a" item* "."\nitem: "b" | "c"',
    ],
    ids=["gbnf", "lark"],
)
def test_grammars_are_kept(compiler: ConstraintCompiler, grammar: str) -> None:
    text = written(compiler, Constraint(ConstraintKind.GRAMMAR, grammar), 1)
    assert re.fullmatch(r"a[bc]*\.?", text)


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= (",
        "root ::= " + "(" * 9999,
        "start: nothing",
        "%%%",
        "root ::= foo",
        'root ::= "\\"',
        "root ::= [\\",
        "b ::= ",
        " ",
        "\n",
    ],
)
def test_a_broken_grammar_is_refused(compiler: ConstraintCompiler, grammar: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        compiler.compile(Constraint(ConstraintKind.GRAMMAR, grammar))
    assert caught.value.param == "grammar"


def test_every_token_that_ends_a_turn_may_end_the_answer() -> None:
    other = len(VOCAB.pieces)
    both = frozenset({END, other})
    vocab = replace(VOCAB, pieces=(*VOCAB.pieces, b"<eot>"), end_ids=both, control_ids=both)
    mask = ConstraintCompiler(vocab).compile(Constraint(ConstraintKind.REGEX, "ab+"))
    assert mask.accept(ord("a"))
    assert mask.accept(ord("b"))
    row = np.zeros(other + 1, np.float32)
    mask.apply(row)
    assert np.flatnonzero(np.isfinite(row)).tolist() == [ord("b"), END, other]
    assert not mask.accept(other)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 1.0])
def test_what_is_not_allowed_is_forbidden_and_the_rest_left_as_it_is(share: float) -> None:
    rng = np.random.default_rng(0)
    row = rng.standard_normal(5000).astype(np.float32)
    allowed = (rng.random(4990) < share).astype(np.uint8)
    expected = np.where(np.append(allowed, np.zeros(10)) == 1, row, np.float32(-np.inf))
    forbid(row, allowed)
    assert np.array_equal(row, expected)


def test_a_schema_too_large_to_follow_is_an_error_and_not_an_empty_answer(
    compiler: ConstraintCompiler,
) -> None:
    properties = {f"p{i}": {"type": "string"} for i in range(5000)}
    schema = json.dumps({"type": "object", "properties": properties})
    constraint = Constraint(ConstraintKind.JSON_SCHEMA, schema)
    with pytest.raises(RequestInvalid, match="cannot be enforced"):
        written(compiler, constraint, 1)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('{"type": "nope"}', "nope"),
        ('{"type": "string", "pattern": "(?<=a)b"}', "look"),
        ("not json", "line 1"),
        ('{"$ref": "http://example.invalid/x"}', "example.invalid"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(
    compiler: ConstraintCompiler, source: str, named: str
) -> None:
    with pytest.raises(RequestInvalid, match=named) as caught:
        compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, source))
    assert caught.value.param == "response_format"
