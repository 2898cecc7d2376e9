"""Masks that keep an answer in a shape: JSON schemas, regular expressions, grammars
(llguidance)."""

import json
import re
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import llguidance
import numpy as np
from llguidance import gbnf_to_lark
from numpy.typing import NDArray

from models.chat import Constraint, ConstraintKind
from models.dialects.grammar import JSON_LAYOUT, as_json
from models.dialects.values import as_mapping
from models.errors import RequestInvalid
from runtimes.messages import Vocab

# What the library tells of its inner state helps nobody who wrote a schema.
_LIMITS = llguidance.LLParserLimits(verbose_errors=False)
_ANY_OBJECT = '{"type":"object"}'

# Agents send the same tools with every turn, and compiling these takes 20 ms.
_REMEMBERED = 16


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
        self._by_bytes = {
            piece: i
            for i, piece in reversed(list(enumerate(vocab.pieces)))
            if i not in vocab.control_ids
        }
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
        self.vocab, self._words = vocab, _Tokenizer(vocab, encode)
        self._tokenizer: Any = None
        self._preparing = threading.Lock()
        self._compiled: OrderedDict[Constraint, Any] = OrderedDict()
        self._remembering = threading.Lock()

    def prepare(self) -> None:
        """Build the vocabulary's table, if it is not there yet: 0.1 s for 49k tokens, 1.3 s for
        262k, during which no step can run (the library holds the interpreter's lock)."""
        with self._preparing:
            if self._tokenizer is None:
                wrapper: Any = llguidance.TokenizerWrapper(self._words)
                self._tokenizer = llguidance.LLTokenizer(wrapper)

    def compile(self, constraint: Constraint) -> "TokenMask":
        """A fresh mask. Raises RequestInvalid naming what cannot be enforced."""
        matcher = self._compiled.get(constraint)
        if matcher is None:
            matcher = self._matcher(constraint)
        with self._remembering:
            self._compiled[constraint] = matcher
            self._compiled.move_to_end(constraint)
            while len(self._compiled) > _REMEMBERED:
                self._compiled.popitem(last=False)
        return TokenMask(matcher, self.vocab).fresh()

    def _matcher(self, constraint: Constraint) -> Any:
        grammar = _grammar(constraint)
        self.prepare()
        matcher: Any = llguidance.LLMatcher(self._tokenizer, grammar, limits=_LIMITS)
        if matcher.is_error():
            raise _refusal(constraint.kind, str(matcher.get_error()))
        return matcher

    def encode(self, text: bytes) -> list[int]:
        """Tokens that spell the text; as the model would write it where that is known."""
        return self._words(text)


def _grammar(constraint: Constraint) -> str:
    build: Any = llguidance.LLMatcher
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match constraint.kind:
                case ConstraintKind.JSON_OBJECT:
                    return str(build.grammar_from_json_schema(_ANY_OBJECT, JSON_LAYOUT))
                case ConstraintKind.JSON_SCHEMA:
                    return str(build.grammar_from_json_schema(constraint.source, JSON_LAYOUT))
                case ConstraintKind.REGEX:
                    return str(build.grammar_from_regex(constraint.source))
                case ConstraintKind.GRAMMAR:
                    return str(build.grammar_from_lark(_lark(constraint)))
                case ConstraintKind.CALLS | ConstraintKind.ANSWER:
                    return str(build.grammar_from_lark(constraint.source))
    except Exception as error:  # the converter raises anything, IndexError and Exception included
        raise _refusal(constraint.kind, str(error)) from error


def as_lark(constraint: Constraint) -> str:
    """A constraint as an expression within a Lark grammar. Raises RequestInvalid where it is not
    even written well."""
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT | ConstraintKind.JSON_SCHEMA:
            schema: Any = json.loads(constraint.source or _ANY_OBJECT)
            return as_json(as_mapping(schema) or {"anyOf": [schema]})
        case ConstraintKind.REGEX:
            escaped = re.sub(r"(\\.)|/", lambda m: m[1] or r"\/", constraint.source)
            return "/" + escaped.replace("\n", r"\n") + "/"
        case _:
            inner = re.sub(r"%llguidance\s*\{[^}]*\}", "", _lark(constraint))
            return f"%lark {{\n{inner}\n}}"


def _lark(constraint: Constraint) -> str:
    try:
        return gbnf_to_lark.any_to_lark(constraint.source)
    except Exception as error:  # as above
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

    active = True
    """It has a say about every token."""

    def __init__(self, matcher: Any, vocab: Vocab) -> None:
        self._matcher, self._vocab = matcher, vocab
        self._end_ids = np.array(sorted(vocab.end_ids), np.int64)
        self._size = len(vocab.pieces)
        self._bits: NDArray[np.int32] = np.zeros((self._size + 31) // 32, np.int32)

    def fresh(self) -> "TokenMask":
        """Another answer in the same state."""
        return TokenMask(self._matcher.deep_copy(), self._vocab)

    def takes(self, tokens: Sequence[int]) -> bool:
        """Whether the answer may go on with these."""
        return int(self._matcher.validate_tokens(list(tokens))) == len(tokens)

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
        ends = token in self._vocab.end_ids
        if not ends:  # the grammar knows one of them at most, and would refuse the others
            self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise RequestInvalid(_reason(str(self._matcher.get_error())), "response_format")
        return not (ends or self._matcher.is_stopped())
