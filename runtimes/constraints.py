"""Masks that keep an answer in a shape: JSON schemas, regular expressions, grammars
(llguidance)."""

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import llguidance
import numpy as np
from llguidance import gbnf_to_lark
from numpy.typing import NDArray

from models.chat import Constraint, ConstraintKind
from models.errors import RequestInvalid
from runtimes.messages import Vocab

# What the library tells of its inner state helps nobody who wrote a schema.
_LIMITS = llguidance.LLParserLimits(verbose_errors=False)
_ANY_OBJECT = '{"type":"object"}'

# Pretty-printed JSON passes; endless white space, where weak models get lost, does not.
_LAYOUT = {"whitespace_flexible": True, "whitespace_pattern": r"(\n[ ]{0,40}|[ ]?)"}


class _Tokenizer:
    """What llguidance wants to know of a vocabulary: it tokenizes the text that a shape leaves no
    choice about. That goes as the model would write it where `encode` tells, else by the longest
    pieces."""

    def __init__(self, vocab: Vocab, encode: Callable[[str], Sequence[int]] | None = None) -> None:
        self._encode = encode
        self._pieces = vocab.pieces
        self.eos_token_id = vocab.eos_id
        self.bos_token_id = vocab.bos_id if vocab.bos_id >= 0 else None
        self.tokens = [
            b"\xff" + piece if i in vocab.control_ids else piece
            for i, piece in enumerate(vocab.pieces)
        ]
        self.special_token_ids = sorted(vocab.control_ids)
        self._by_bytes = {piece: i for i, piece in reversed(list(enumerate(vocab.pieces)))}
        self._longest = max(map(len, self._by_bytes), default=1)

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        if self._encode is not None and (own := self._as_the_model(data)):
            return own
        ids: list[int] = []
        at = 0
        while at < len(data):
            for n in range(min(self._longest, len(data) - at), 0, -1):
                found = self._by_bytes.get(data[at : at + n])
                if found is not None:
                    ids.append(found)
                    at += n
                    break
            else:
                at += 1
        return ids

    def _as_the_model(self, data: bytes) -> list[int]:
        """The ids the model's own tokenizer gives, if they spell exactly this."""
        assert self._encode is not None
        try:
            ids = list(self._encode(data.decode()))
        except UnicodeDecodeError:
            return []
        return ids if b"".join(self._pieces[i] for i in ids) == data else []


class ConstraintCompiler:
    """Makes masks for one vocabulary. May be called from any thread."""

    def __init__(self, vocab: Vocab, encode: Callable[[str], Sequence[int]] | None = None) -> None:
        self._vocab, self._encode = vocab, encode
        self._tokenizer: Any = None
        self._preparing = threading.Lock()

    def prepare(self) -> None:
        """Build the vocabulary's table, if it is not there yet: 0.1 s for 49k tokens, 1.3 s for
        262k, during which no step can run (the library holds the interpreter's lock)."""
        with self._preparing:
            if self._tokenizer is None:
                wrapper: Any = llguidance.TokenizerWrapper(_Tokenizer(self._vocab, self._encode))
                self._tokenizer = llguidance.LLTokenizer(wrapper)

    def compile(self, constraint: Constraint) -> "TokenMask":
        """A fresh mask. Raises RequestInvalid naming what cannot be enforced."""
        grammar = _grammar(constraint)
        self.prepare()
        matcher: Any = llguidance.LLMatcher(self._tokenizer, grammar, limits=_LIMITS)
        if matcher.is_error():
            raise _refusal(constraint.kind, str(matcher.get_error()))
        return TokenMask(matcher, len(self._vocab.pieces), self._vocab.end_ids)


def _grammar(constraint: Constraint) -> str:
    build: Any = llguidance.LLMatcher
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match constraint.kind:
                case ConstraintKind.JSON_OBJECT:
                    return str(build.grammar_from_json_schema(_ANY_OBJECT, _LAYOUT))
                case ConstraintKind.JSON_SCHEMA:
                    return str(build.grammar_from_json_schema(constraint.source, _LAYOUT))
                case ConstraintKind.REGEX:
                    return str(build.grammar_from_regex(constraint.source))
                case ConstraintKind.GRAMMAR:
                    lark = gbnf_to_lark.any_to_lark(constraint.source)
                    return str(build.grammar_from_lark(lark))
                case ConstraintKind.CALLS:
                    return str(build.grammar_from_lark(constraint.source))
    except Exception as error:  # the converter raises anything, IndexError and Exception included
        raise _refusal(constraint.kind, str(error)) from error


_PARAMS = {ConstraintKind.GRAMMAR: "grammar", ConstraintKind.CALLS: "tools"}


def _refusal(kind: ConstraintKind, text: str) -> RequestInvalid:
    return RequestInvalid(_reason(text), _PARAMS.get(kind, "response_format"))


def _reason(text: str) -> str:
    return "This shape cannot be enforced: " + (" ".join(text.split()) or "unknown reason")[:300]


# Where fewer than one token in so many is allowed, writing these is cheaper than a pass.
_FEW = 64


def forbid(row: NDArray[np.float32], allowed: NDArray[np.uint8]) -> None:
    """Set the logits of the tokens that are not `allowed` (0 or 1 each) to -inf, in place, and
    those beyond."""
    if np.count_nonzero(allowed) * _FEW < len(allowed):
        ids = np.flatnonzero(allowed)
        values = row[ids]
        row.fill(-np.inf)
        row[ids] = values
        return
    with np.errstate(divide="ignore"):
        # log 0 is -inf, and log 1 adds nothing: much faster than writing through a boolean index.
        row[: len(allowed)] += np.log(allowed, dtype=np.float32)
    row[len(allowed) :] = -np.inf


class TokenMask:
    """The state of one constrained answer."""

    def __init__(self, matcher: Any, vocab_size: int, end_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._ends = end_ids
        self._end_ids = np.array(sorted(end_ids), np.int64)
        self._bits: NDArray[np.int32] = np.zeros((vocab_size + 31) // 32, np.int32)
        self._size = vocab_size

    def apply(self, row: NDArray[np.float32]) -> None:
        """Forbid every token that would break the shape, in place. Where the shape is complete, and
        only there, the tokens that end a turn are allowed."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        allowed = np.unpackbits(self._bits.view(np.uint8), bitorder="little")[: self._size]
        ends = row[self._end_ids].copy() if self._matcher.is_accepting() else None
        forbid(row, allowed)
        if ends is not None:
            row[self._end_ids] = ends

    def forced(self) -> list[int]:
        """The tokens that must come next, taken note of already."""
        tokens: list[int] = self._matcher.compute_ff_tokens()
        if tokens:
            self._matcher.consume_tokens(tokens)
        return tokens

    def accept(self, token: int) -> bool:
        """Take note of the chosen token; False where the answer is complete with it. Raises
        RequestInvalid where the schema turned out to be too large to follow."""
        ends = token in self._ends
        if not ends:  # the grammar knows one of them at most, and would refuse the others
            self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise RequestInvalid(_reason(str(self._matcher.get_error())), "response_format")
        return not (ends or self._matcher.is_stopped())
