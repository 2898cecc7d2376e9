"""Calls that a grammar forces: whatever a model would like to write, its dialect reads a call."""

import json

import numpy as np
import pytest

from models.chat import Constraint, ConstraintKind, Tool
from models.dialects.base import THINK, Dialect
from models.dialects.choose import DIALECTS
from models.dialects.grammar import call_grammar
from models.dialects.harmony import HARMONY
from models.dialects.hermes import HERMES
from models.dialects.llama import LLAMA_JSON, LLAMA_PYTHON
from models.dialects.qwen import QWEN_CODER
from runtimes.constraints import ConstraintCompiler
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
    pieces, out = chosen._vocab.pieces, b""
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
def test_a_required_call_is_read_as_one(dialect: Dialect, seed: int) -> None:
    grammar = call_grammar(dialect, TOOLS, required=True, parallel=False)
    assert grammar is not None
    spoken = calls(dialect, written(grammar, seed, closing=closing_of(dialect)))
    assert [type(s) for s in spoken if not isinstance(s, Thought)] == [Called]


@pytest.mark.parametrize(
    "dialect",
    [d for d in expressed if d.layout and d.layout.between is not None],
    ids=lambda d: d.name,
)
def test_several_calls_are_read_as_several(dialect: Dialect) -> None:
    one = call_grammar(dialect, TOOLS, required=True, parallel=False, named="now")
    many = call_grammar(dialect, TOOLS, required=True, parallel=True)
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
def test_a_named_tool_is_the_one_that_is_called(dialect: Dialect) -> None:
    grammar = call_grammar(dialect, TOOLS, required=True, parallel=False, named="now")
    assert grammar is not None
    spoken = calls(dialect, written(grammar, 1, closing=closing_of(dialect)))
    assert [s.name for s in spoken if isinstance(s, Called)] == ["now"]


@pytest.mark.parametrize("dialect", expressed, ids=lambda d: d.name)
def test_where_calls_are_free_an_answer_in_words_is_too(dialect: Dialect) -> None:
    grammar = call_grammar(dialect, TOOLS, required=False, parallel=True)
    assert grammar is not None
    begin = ("<|channel|>final<|message|>" if dialect is HARMONY else "") + "It rains"
    spoken = read(dialect, [written(grammar, 0, begin, end=50)], TOOLS)
    assert spoken == [Said("It rains")]


@pytest.mark.parametrize("dialect", expressed, ids=lambda d: d.name)
@pytest.mark.parametrize("seed", range(3))
def test_where_calls_are_free_one_that_begins_comes_out_well(dialect: Dialect, seed: int) -> None:
    grammar = call_grammar(dialect, TOOLS, required=False, parallel=False)
    assert grammar is not None
    assert dialect.layout is not None
    opening = dialect.layout.begin or dialect.layout.head
    words = "" if opening.startswith("{") or dialect is HARMONY else "Let me see. "
    text = written(grammar, seed, words + opening, closing=closing_of(dialect))
    said = [s for s in calls(dialect, text) if not isinstance(s, Called)]
    assert said == ([Said("Let me see.")] if words else [])


def test_reasoning_that_the_prompt_opened_is_closed_first() -> None:
    grammar = call_grammar(HERMES, TOOLS, required=True, parallel=False, opened=THINK)
    assert grammar is not None
    text = written(grammar, 0, "So.</think>\n\n")
    spoken = calls(HERMES, text, prompt_end="<think>\n")
    assert spoken[0] == Thought("So.")
    assert isinstance(spoken[1], Called)


def test_a_model_may_reason_before_a_call_it_has_to_make() -> None:
    grammar = call_grammar(HERMES, TOOLS, required=True, parallel=False, may_think=True)
    assert grammar is not None
    spoken = calls(HERMES, written(grammar, 0, "<think>So.</think>\n\n"))
    assert [type(s) for s in spoken] == [Thought, Called]
    spoken = calls(HERMES, written(grammar, 0, "<tool_call>"))
    assert [type(s) for s in spoken] == [Called]


def test_marks_that_are_control_tokens_are_written_as_such() -> None:
    marks = ("<tool_call>", "</tool_call>")
    special = {mark: END + 1 + n for n, mark in enumerate(marks)}
    for dialect in (HERMES, QWEN_CODER):
        for required in (True, False):
            grammar = call_grammar(
                dialect, TOOLS, required=required, parallel=False, special=special
            )
            assert grammar is not None
            assert "tool_call>" not in grammar
        grammar = call_grammar(dialect, TOOLS, required=True, parallel=False, special=special)
        assert grammar is not None
        spoken = calls(
            dialect, written(grammar, 0, chosen=compiler(*marks), closing=closing_of(dialect))
        )
        assert [type(s) for s in spoken] == [Called]


def test_where_there_is_nothing_to_call_there_is_no_grammar() -> None:
    assert call_grammar(HERMES, (), required=True, parallel=False) is None
    assert call_grammar(HERMES, TOOLS, required=True, parallel=False, named="other") is None
    assert call_grammar(LLAMA_PYTHON, TOOLS, required=True, parallel=False) is None
    assert LLAMA_JSON.triggers[0] == "<|python_tag|>"
