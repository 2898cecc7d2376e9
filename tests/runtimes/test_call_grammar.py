"""Answers that a grammar forces: whatever a model would like to write, its dialect reads a call, or
text of the wanted shape."""

import json

import numpy as np
import pytest

from models.chat import Constraint, ConstraintKind, Tool
from models.dialects.base import Dialect
from models.dialects.choose import DIALECTS
from models.dialects.grammar import Calls, answer_grammar, call_grammar, call_triggers
from models.dialects.harmony import HARMONY
from models.dialects.hermes import HERMES
from models.dialects.llama import LLAMA_JSON, LLAMA_PYTHON
from models.dialects.mistral import MISTRAL_LIST
from models.dialects.qwen import QWEN_CODER
from models.dialects.spelling import spelled
from runtimes.constraints import ConstraintCompiler, as_lark
from runtimes.messages import Vocab
from tests.models.dialects.reading import Called, Said, Spoken, Thought, read

END = 256
BYTES = tuple(bytes([i]) for i in range(256))
LOOK = Tool(
    "look",
    "Look something up",
    {
        "type": "object",
        "properties": {
            "tone": {"enum": ["calm", "loud"]},
            "level": {"type": "integer", "minimum": 0, "maximum": 9},
            "word": {"type": "string", "maxLength": 4},
            "near": {"$ref": "#/$defs/place"},
        },
        "required": ["tone", "level"],
        "additionalProperties": False,
        "$defs": {
            "place": {
                "type": "object",
                "properties": {"x": {"type": "boolean"}},
                "required": ["x"],
                "additionalProperties": False,
            }
        },
    },
)
NOW = Tool("now", "The time", {"type": "object", "properties": {}})
TOOLS = (LOOK, NOW)
ONE, SEVERAL = Calls(TOOLS, parallel=False), Calls(TOOLS)
NAMED = Calls((NOW,), parallel=False)


def compiler(*special: str) -> ConstraintCompiler:
    """One token a byte, and these control tokens."""
    marks = tuple(mark.encode() for mark in special)
    controls = frozenset(range(END, END + 1 + len(marks)))
    return ConstraintCompiler(
        Vocab(
            pieces=(*BYTES, b"<end>", *marks),
            end_ids=frozenset({END}),
            control_ids=controls,
            bos_id=-1,
            eos_id=END,
            bos_text="",
            eos_text="<end>",
            adds_bos=False,
        )
    )


PLAIN = compiler()


def written(
    grammar: str,
    seed: int,
    begin: str = "",
    chosen: ConstraintCompiler = PLAIN,
    end: float = 2,
    closing: str = "",
) -> str:
    """What a model of random taste writes after `begin`. It likes letters, and to end; and where
    any letter may stand it comes to `closing` after a while."""
    rng = np.random.default_rng(seed)
    mask = chosen.compile(Constraint(ConstraintKind.GRAMMAR, grammar))
    pieces, out = chosen.vocab.pieces, b""
    planned = list(begin.encode())
    forced = len(planned)
    for step in range(1500):
        row = rng.standard_normal(len(pieces)).astype(np.float32)
        row[[*range(48, 58), *range(97, 123), *b'<>/"}']] += 3
        row[END] += end
        mask.apply(row)
        if not planned and np.isfinite(row).sum() > 100 and rng.random() < 0.2:
            planned = list(closing.encode())
        token = planned.pop(0) if planned else int(row.argmax())
        if not np.isfinite(row[token]):
            assert step >= forced, (out, token)
            planned, token = [], int(row.argmax())
        if token != END:
            out += pieces[token]
        if not mask.accept(token) or token == END:
            return out.decode("utf-8", "replace")
    raise AssertionError(f"no end in sight: {out[-200:]!r}")


def closing_of(dialect: Dialect) -> str:
    """What ends a stretch of any text in a call of this dialect."""
    tags = dialect.layout.arguments if dialect.layout is not None else None
    return tags.close if tags is not None else "<|end|><|start|>assistant"


def calls(dialect: Dialect, text: str, prompt_end: str = "") -> list[Spoken]:
    spoken = read(dialect, [text], TOOLS, prompt_end)
    for call in spoken:
        if isinstance(call, Called):
            assert call.ended
            arguments = json.loads(call.arguments)
            assert call.name in ("look", "now")
            if call.name == "now":
                assert arguments == {}
            else:
                assert arguments["tone"] in ("calm", "loud")
                assert arguments["level"] in range(10)
                assert isinstance(arguments.get("near", {}), dict)
    return spoken


expressed = [d for d in DIALECTS if d.layout is not None]


@pytest.mark.parametrize("dialect", expressed, ids=lambda d: d.name)
@pytest.mark.parametrize("seed", range(4))
def test_a_call_is_read_as_one(dialect: Dialect, seed: int) -> None:
    for made in (call_grammar(dialect, ONE, {}), answer_grammar(dialect, ONE, None, {})):
        assert made is not None
        spoken = calls(dialect, written(made, seed, closing=closing_of(dialect)))
        assert [type(s) for s in spoken if not isinstance(s, Thought)] == [Called]


@pytest.mark.parametrize(
    "dialect",
    [d for d in expressed if d.layout and d.layout.between is not None],
    ids=lambda d: d.name,
)
def test_several_calls_are_read_as_several(dialect: Dialect) -> None:
    one = call_grammar(dialect, NAMED, {})
    many = call_grammar(dialect, SEVERAL, {})
    assert one is not None
    assert many is not None
    assert dialect.layout is not None
    assert dialect.layout.between is not None
    first = written(one, 0).removesuffix(dialect.layout.end)
    begun = first + dialect.layout.between + dialect.layout.head
    text = written(many, 1, begun, closing=closing_of(dialect))
    spoken = calls(dialect, text)
    assert len(spoken) > 1
    assert all(isinstance(s, Called) for s in spoken)


@pytest.mark.parametrize("dialect", expressed, ids=lambda d: d.name)
def test_only_what_was_chosen_is_called(dialect: Dialect) -> None:
    grammar = call_grammar(dialect, NAMED, {})
    assert grammar is not None
    spoken = calls(dialect, written(grammar, 1, closing=closing_of(dialect)))
    assert [s.name for s in spoken if isinstance(s, Called)] == ["now"]


@pytest.mark.parametrize("dialect", expressed, ids=lambda d: d.name)
def test_a_call_begins_with_what_triggers_it(dialect: Dialect) -> None:
    grammar = call_grammar(dialect, ONE, {})
    assert grammar is not None
    text = written(grammar, 0, closing=closing_of(dialect))
    triggers = [t.decode() for t in call_triggers(dialect, ONE, {})]
    assert any(text.startswith(trigger) for trigger in triggers)


def test_without_a_mark_a_call_begins_with_the_name_of_a_tool() -> None:
    assert call_triggers(LLAMA_JSON, ONE, {}) == (b'{"name": "look"', b'{"name": "now"')
    assert call_triggers(LLAMA_PYTHON, ONE, {}) == ()


def test_a_mark_that_is_a_control_token_triggers_as_one() -> None:
    special = {"<|channel|>": 7, "[TOOL_CALLS]": 9}
    assert call_triggers(HARMONY, ONE, special) == (b"\xff[7]commentary to=functions.",)
    assert call_triggers(MISTRAL_LIST, ONE, special) == (b"\xff[9]",)
    assert call_triggers(MISTRAL_LIST, ONE, {}) == (b"[TOOL_CALLS]",)


BODY = Constraint(
    ConstraintKind.JSON_SCHEMA,
    json.dumps(
        {
            "type": "object",
            "properties": {"name": {"enum": ["Ann", "Bob"]}},
            "required": ["name"],
            "additionalProperties": False,
        }
    ),
)


@pytest.mark.parametrize("dialect", expressed, ids=lambda d: d.name)
def test_an_answer_is_a_call_or_has_the_wanted_shape(dialect: Dialect) -> None:
    grammar = answer_grammar(dialect, ONE, as_lark(BODY), {})
    assert grammar is not None
    assert dialect.layout is not None
    final = "<|channel|>final<|message|>" if dialect is HARMONY else ""
    for name in ("Ann", "Bob"):
        begin = final + '{"name": "' + name[0]
        (said,) = read(dialect, [written(grammar, 0, begin)], TOOLS)
        assert isinstance(said, Said)
        assert json.loads(said.text) == {"name": name}
    opening = dialect.layout.begin + dialect.layout.head + "l"
    spoken = calls(dialect, written(grammar, 0, opening, closing=closing_of(dialect)))
    assert [s.name for s in spoken if isinstance(s, Called)] == ["look"]


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (BODY, '{"name": "Ann"}'),
        (Constraint(ConstraintKind.JSON_OBJECT), '{"a": [1, null]}'),
        (Constraint(ConstraintKind.JSON_SCHEMA, "true"), "[1]"),
        (Constraint(ConstraintKind.REGEX, r"a/b\/c\[x]"), "a/b/c[x]"),
        (Constraint(ConstraintKind.REGEX, "a\nb"), "a\nb"),
        (Constraint(ConstraintKind.GRAMMAR, 'root ::= "x" y\ny ::= [0-9]+'), "x12"),
        (Constraint(ConstraintKind.GRAMMAR, 'start: "x" /[0-9]+/'), "x12"),
        (Constraint(ConstraintKind.GRAMMAR, '%llguidance {}\nstart: "x" /[0-9]+/'), "x12"),
    ],
)
def test_every_kind_of_shape_can_stand_beside_calls(constraint: Constraint, text: str) -> None:
    grammar = answer_grammar(HERMES, ONE, as_lark(constraint), {})
    assert grammar is not None
    mask = PLAIN.compile(Constraint(ConstraintKind.ANSWER, grammar))
    assert mask.takes(list(text.encode()))
    assert mask.takes(list(b'<tool_call>\n{"name": "now", "arguments": {}}'))
    assert not mask.takes([*text.encode(), *b"<tool_call>"])


def test_loosely_held_arguments_are_any_object_but_for_strict_tools() -> None:
    strict = Tool("exact", "", NOW.parameters, strict=True)
    grammar = call_grammar(HERMES, Calls((LOOK, strict), loose=True), {})
    assert grammar is not None
    mask = PLAIN.compile(Constraint(ConstraintKind.CALLS, grammar))
    begin = b'<tool_call>\n{"name": "'
    assert mask.takes(list(begin + b'look", "arguments": {"other": 1}}'))
    assert mask.takes(list(begin + b'exact", "arguments": {}}'))
    assert not mask.takes(list(begin + b'exact", "arguments": {"other": 1}}'))


def test_marks_that_are_control_tokens_are_written_as_such() -> None:
    marks = ("<tool_call>", "</tool_call>")
    special = {mark: END + 1 + n for n, mark in enumerate(marks)}
    for dialect in (HERMES, QWEN_CODER):
        grammar = call_grammar(dialect, ONE, special)
        assert grammar is not None
        assert "tool_call>" not in grammar
        spoken = calls(
            dialect, written(grammar, 0, chosen=compiler(*marks), closing=closing_of(dialect))
        )
        assert [type(s) for s in spoken] == [Called]


def test_where_there_is_nothing_to_say_there_is_no_grammar() -> None:
    assert call_grammar(HERMES, Calls(()), {}) is None
    assert answer_grammar(HERMES, Calls(()), None, {}) is None
    assert call_grammar(LLAMA_PYTHON, ONE, {}) is None
    assert spelled("", {}) == b""
