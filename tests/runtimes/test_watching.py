"""Constraints that begin in the middle of an answer: when they hold, and that they cost nothing
until then."""

import numpy as np
import pytest

from models.chat import Constraint, ConstraintKind, Sampling
from models.dialects.grammar import Calls, call_grammar, call_triggers
from models.dialects.hermes import HERMES
from models.dialects.llama import LLAMA_JSON
from models.errors import RequestInvalid
from runtimes.constraints import ConstraintCompiler
from runtimes.messages import Guide, Thought, Vocab
from runtimes.sampling import Mask, Sampler, draw_run
from runtimes.watching import Spelling, guided
from tests.runtimes.test_call_grammar import LOOK, NOW

END, CALL, THINK, UNTHINK = 256, 257, 258, 259
MARKS = {"<tool_call>": CALL, "<think>": THINK, "</think>": UNTHINK}
JOINED = (b'l>\n{"', b"\n\n", b"</think>", b"rain")
VOCAB = Vocab(
    pieces=(*(bytes([i]) for i in range(256)), b"<end>", *(m.encode() for m in MARKS), *JOINED),
    end_ids=frozenset({END}),
    control_ids=frozenset({END, *MARKS.values()}),
    bos_id=-1,
    eos_id=END,
    bos_text="",
    eos_text="<end>",
    adds_bos=False,
)
COMPILER = ConstraintCompiler(VOCAB)
NUMBER = Constraint(ConstraintKind.REGEX, "[0-9]{2}")
TOOLS = Calls((LOOK, NOW))


def mask_of(guide: Guide) -> Mask:
    return guided(guide, COMPILER, Spelling(COMPILER))


def watch(special: dict[str, int], thought: Thought | None = None) -> Mask:
    source = call_grammar(HERMES, TOOLS, special)
    assert source is not None
    constraint = Constraint(ConstraintKind.CALLS, source)
    triggers = call_triggers(HERMES, TOOLS, special)
    return mask_of(Guide(constraint, thought=thought, triggers=triggers))


def say(mask: Mask, *pieces: str | int) -> None:
    """The answer goes on with these letters and tokens."""
    for piece in pieces:
        for token in [piece] if isinstance(piece, int) else piece.encode():
            assert mask.accept(token), (piece, token)


def allowed(mask: Mask) -> set[int]:
    row = np.zeros(len(VOCAB.pieces), np.float32)
    assert mask.active
    mask.apply(row)
    return set(np.flatnonzero(np.isfinite(row)).tolist())


def held_to_json(mask: Mask) -> bool:
    """Whether the call's grammar is what holds, at the place before its name."""
    return mask.active and allowed(mask) == {ord("l"), ord("n")}


# ------------------------------------------------------------------------------------ calls


@pytest.mark.parametrize("special", [MARKS, {}], ids=["control token", "text"])
def test_a_call_is_held_to_its_grammar_and_nothing_before_it(special: dict[str, int]) -> None:
    mask = watch(special)
    say(mask, "I look it up: <tool")
    assert not mask.active
    assert mask.forced() == []
    mask = watch(special)
    say(mask, "I look it up: ")
    say(mask, CALL) if special else say(mask, "<tool_call>")
    assert mask.active
    assert bytes(mask.forced()) == b'\n{"name": "'
    assert held_to_json(mask)
    say(mask, "now")
    assert bytes(mask.forced()) == b'", "arguments": {}}\n</tool_call>'
    assert END in allowed(mask)
    assert not mask.accept(END)


def test_what_follows_the_mark_in_its_last_token_belongs_to_the_call() -> None:
    mask = watch({})
    say(mask, "<tool_cal", VOCAB.pieces.index(b'l>\n{"'))
    assert mask.active
    assert bytes(mask.forced()) == b'name": "'


def test_what_no_call_can_begin_with_passes() -> None:
    mask = watch({})
    pieces = (*VOCAB.pieces, b"l>` is a tag")
    vocab = Vocab(pieces, VOCAB.end_ids, VOCAB.control_ids, -1, END, "", "<end>", False)
    compiler = ConstraintCompiler(vocab)
    source = call_grammar(HERMES, TOOLS, {})
    assert source is not None
    guide = Guide(Constraint(ConstraintKind.CALLS, source), triggers=(b"<tool_call>",))
    mask = guided(guide, compiler, Spelling(compiler))
    say(mask, "`<tool_cal", len(pieces) - 1)
    assert not mask.active
    say(mask, " and here: <tool_call>")
    assert mask.active


def test_the_text_of_a_control_token_is_no_mark() -> None:
    mask = watch(MARKS)
    say(mask, "<tool_call>")
    assert not mask.active


def test_a_call_in_reasoning_is_none() -> None:
    for opened in (True, False):
        mask = watch(MARKS, Thought(b"\xff[258]", b"\xff[259]", opened))
        say(mask, *([] if opened else [THINK]), "perhaps ", CALL, "?")
        assert not mask.active
        say(mask, UNTHINK, "\n\n", CALL)
        assert mask.active


def test_an_answer_that_does_not_begin_with_reasoning_has_none() -> None:
    mask = watch({}, Thought(b"<think>", b"</think>"))
    say(mask, "<thus> I <think> of <tool_call>")
    assert mask.active


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ('{"name": "now"', True),
        ('\n {"name": "now"', True),
        ('{"name": "nobody"', False),
        ('{"nam', False),
        ('So: {"name": "now"', False),
    ],
)
def test_without_a_mark_only_the_beginning_of_an_answer_is_a_call(text: str, held: bool) -> None:
    source = call_grammar(LLAMA_JSON, TOOLS, {})
    assert source is not None
    triggers = call_triggers(LLAMA_JSON, TOOLS, {})
    constraint = Constraint(ConstraintKind.CALLS, source)
    mask = mask_of(Guide(constraint, triggers=triggers, beginning=True))
    say(mask, text)
    assert mask.active is held


# ------------------------------------------------------------------------------------ shapes


def test_a_shape_holds_after_reasoning_that_the_prompt_opened() -> None:
    mask = mask_of(Guide(NUMBER, thought=Thought(b"<think>", b"</think>", opened=True)))
    assert not mask.active
    say(mask, "12 or 1x?</think")
    assert not mask.active
    say(mask, ">")
    digits = set(b"0123456789")
    assert allowed(mask) == digits | {ord("\n"), ord(" "), VOCAB.pieces.index(b"\n\n")}
    say(mask, "\n")
    assert allowed(mask) == digits
    say(mask, "1")
    assert not mask.accept(ord("2"))


def test_what_follows_the_reasoning_in_its_last_token_is_the_answer_s() -> None:
    pieces = (*VOCAB.pieces, b"nk>\n\n4")
    vocab = Vocab(pieces, VOCAB.end_ids, VOCAB.control_ids, -1, END, "", "<end>", False)
    compiler = ConstraintCompiler(vocab)
    guide = Guide(NUMBER, thought=Thought(b"<think>", b"</think>", opened=True))
    mask = guided(guide, compiler, Spelling(compiler))
    say(mask, "so</thi", len(pieces) - 1)
    assert not mask.accept(ord("2"))


def test_a_model_may_reason_before_what_it_is_held_to() -> None:
    for start, end, opening in (
        (b"\xff[258]", b"\xff[259]", [THINK]),
        (b"<think>", b"</think>", ["<think>"]),
    ):
        thought = Thought(start, end)
        mask = mask_of(Guide(NUMBER, thought=thought))
        first = opening[0] if isinstance(opening[0], int) else ord("<")
        assert allowed(mask) == {*b"0123456789", first}
        say(mask, *opening)
        assert not mask.active
        say(mask, "x", *([UNTHINK] if start[0] == 255 else ["</think>"]), "4")
        assert not mask.accept(ord("2"))
        mask = mask_of(Guide(NUMBER, thought=thought))
        say(mask, "4")
        assert allowed(mask) == set(b"0123456789")


def test_a_mark_that_has_begun_is_written_to_its_end() -> None:
    mask = mask_of(Guide(NUMBER, thought=Thought(b"<think>", b"</think>")))
    say(mask, "<th")
    assert allowed(mask) == {ord("i")}


def test_an_answer_may_end_within_its_reasoning() -> None:
    thought = Thought(b"<think>", b"</think>", opened=True)
    assert not mask_of(Guide(NUMBER, thought=thought)).accept(END)
    assert not watch({}, thought).accept(END)


# ------------------------------------------------------------------------------------ the rest


def test_what_cannot_be_enforced_is_replaced_or_refused() -> None:
    bad = Constraint(ConstraintKind.REGEX, "(")
    with pytest.raises(RequestInvalid, match="cannot be enforced"):
        mask_of(Guide(bad))
    mask = mask_of(Guide(bad, fallback=NUMBER))
    assert allowed(mask) == set(b"0123456789")


def test_a_constraint_that_was_compiled_before_starts_anew() -> None:
    first, second = mask_of(Guide(NUMBER)), mask_of(Guide(NUMBER))
    say(first, "1")
    assert not first.accept(ord("2"))
    say(second, "1")
    assert not second.accept(ord("3"))


def test_guessed_tokens_are_verified_under_a_mask_that_begins_among_them() -> None:
    draft = [CALL, *b'\n{"name": "what']
    logits = np.zeros((len(draft) + 1, len(VOCAB.pieces)), np.float32)
    for at, token in enumerate(draft):
        logits[at, token] = 9
    sampler = Sampler(Sampling(temperature=0), None, watch(MARKS))
    drawn = [one.token for one in draw_run(sampler, logits.copy(), draft)]
    assert drawn == [CALL]  # the others were not chosen under the mask
    rest = draw_run(sampler, logits[1:].copy(), draft[1:])
    assert bytes(one.token for one in rest)[:-1] == b'\n{"name": "'
    assert rest[-1].token in b"ln"
