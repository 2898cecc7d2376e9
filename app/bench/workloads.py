"""What is asked: seeded conversations of fixed text, the same in each run.

Caches outlive a round, so the first words of each conversation are a salt (`salted`): the rest is
the same text, and a server that matches prefixes still has to read it anew."""

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_SEED = 20240607
# Common words are one token in most vocabularies, so that words can stand for tokens.
_VOCABULARY = """
river stone garden winter letter window market summer bridge paper silver animal corner doctor
engine father forest island kitchen leather machine mountain number ocean orange picture planet
pocket police power question rabbit record school season shadow sister station street student
table teacher thunder ticket travel valley village water weather yellow candle castle circle
copper cotton desert dinner dragon family farmer finger flower friend ground hammer harbor
hunter jacket ladder lesson master meadow mirror moment morning
"""
_WORDS = _VOCABULARY.split()
_SENTENCE = 12
CONVERSATION_TURNS = 10
_ROUND_ROBIN_TURNS = 3


class WorkloadName(StrEnum):
    """The workloads there are, in the order in which they run."""

    SINGLE = "single"
    STREAMS = "streams"
    FANOUT = "fanout"
    CONVERSATION = "conversation"
    TURNS = "turns"
    EDIT = "edit"
    JSON = "json"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the workloads are. Tokens of prompts are words, so they are about right."""

    streams: int = 8
    """Requests at once."""
    prompt_tokens: int = 1000
    """Of a long prompt: a shared prefix, a document, a conversation at its end."""
    max_tokens: int = 64
    """Of each answer."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is said next, after the first `keep` turns of the conversation (None: after all)."""

    text: str
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Conversations, and how they are led."""

    name: WorkloadName
    about: str
    lanes: tuple[tuple[Turn, ...], ...]
    """Each lane is a conversation; its next turn is asked when its last answer has ended."""
    max_tokens: int
    at_once: bool = True
    """All lanes at the same time; else one request at a time, the lanes taking turns."""
    one_salt: bool = False
    """The lanes begin with the same words; else no two share a prefix."""
    response_format: Mapping[str, Any] | None = None

    @property
    def requests(self) -> int:
        """How many requests one round makes."""
        return sum(map(len, self.lanes))


def build(name: WorkloadName, sizes: Sizes) -> Workload:
    """The workload of this name. Its text depends on the sizes and nothing else."""
    # A generator of its own: a workload's text does not depend on which others run.
    about, make = _MAKERS[name]
    parts = make(_Prose(f"{_SEED} {name}"), sizes)
    return Workload(name, about, max_tokens=sizes.max_tokens, **parts)


def salted(workload: Workload, run: str, round_number: int, lane: int) -> str:
    """The first words of a lane in one round."""
    parts = (run, workload.name.value, round_number, 0 if workload.one_salt else lane)
    digest = hashlib.sha256(repr(parts).encode()).digest()
    # Two words of 80 would meet again too soon; four are 1 in 40 million.
    return " ".join(_WORDS[byte % len(_WORDS)] for byte in digest[:4]).capitalize() + "."


class _Prose:
    """Seeded text that means nothing."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def word(self) -> str:
        # Python promises that `random()` repeats in all its versions, and nothing of `choice()`.
        return _WORDS[int(self._random.random() * len(_WORDS))]

    def text(self, words: int) -> str:
        drawn = [self.word() for _ in range(max(1, words))]
        sentences = [drawn[at : at + _SENTENCE] for at in range(0, len(drawn), _SENTENCE)]
        return " ".join(" ".join(sentence).capitalize() + "." for sentence in sentences)

    def story(self) -> str:
        return f"Write a long story about a {self.word()}, a {self.word()} and a {self.word()}."


def _single(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    return {"lanes": ((Turn(prose.story()),),)}


def _streams(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    return {"lanes": tuple((Turn(prose.story()),) for _ in range(sizes.streams))}


def _fanout(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    prefix = prose.text(sizes.prompt_tokens)
    return {
        "lanes": tuple((Turn(f"{prefix}\n\n{prose.story()}"),) for _ in range(sizes.streams)),
        "one_salt": True,
    }


def _talk(prose: _Prose, turns: int, words: int) -> tuple[Turn, ...]:
    return tuple(Turn(f"{prose.text(words)}\n{prose.story()}") for _ in range(turns))


def _conversation(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    words = sizes.prompt_tokens // CONVERSATION_TURNS
    return {"lanes": (_talk(prose, CONVERSATION_TURNS, words),)}


def _turns(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    words = sizes.prompt_tokens // CONVERSATION_TURNS
    # Half as many again as there are slots on a server with `--streams` of them.
    lanes = sizes.streams + (sizes.streams + 1) // 2
    return {
        "lanes": tuple(_talk(prose, _ROUND_ROBIN_TURNS, words) for _ in range(lanes)),
        "at_once": False,
    }


def _edit(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    half = sizes.prompt_tokens // 2
    head, tail = prose.text(half), prose.text(half)
    middles = [prose.text(_SENTENCE) for _ in range(2)]
    first, retry = (f"{head} {middle} {tail}\n\n{prose.story()}" for middle in middles)
    return {
        "lanes": (
            (
                Turn(first),
                Turn(prose.story()),
                Turn(prose.story()),
                Turn(prose.story(), keep=1),  # the second question asked in other words
                Turn(retry, keep=0),  # a sentence in the middle of the document is another
                Turn(first, keep=0),  # and back
            ),
        )
    }


_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "colour": {"type": "string", "enum": ["red", "green", "blue", "grey"]},
        "heavy": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
    },
    "required": ["name", "colour", "heavy", "count"],
    "additionalProperties": False,
}


def _json(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    ask = "Describe a {} as JSON with its name, its colour, whether it is heavy, and a count."
    turns = tuple(Turn(ask.format(prose.word()), keep=0) for _ in range(4))
    schema = {"name": "thing", "strict": True, "schema": _SCHEMA}
    return {
        "lanes": (turns,),
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


def _copy(prose: _Prose, sizes: Sizes) -> dict[str, Any]:
    # The whole copy has to fit the answer: else its end, the steadiest part, is missing.
    text = prose.text(min(sizes.prompt_tokens, max(8, sizes.max_tokens * 2 // 3)))
    task = "Repeat the text below word for word, but write lake in place of river. Text only."
    return {"lanes": ((Turn(f"{task}\n\n{text}"),),)}


_Maker = Callable[[_Prose, Sizes], dict[str, Any]]
_MAKERS: dict[WorkloadName, tuple[str, _Maker]] = {
    WorkloadName.SINGLE: ("one stream", _single),
    WorkloadName.STREAMS: ("short prompts at once", _streams),
    WorkloadName.FANOUT: ("one long prefix, several questions at once, cold", _fanout),
    WorkloadName.CONVERSATION: ("one conversation that grows", _conversation),
    WorkloadName.TURNS: ("more conversations than slots, taking turns", _turns),
    WorkloadName.EDIT: ("edit in the middle and ask again", _edit),
    WorkloadName.JSON: ("answers of a JSON schema", _json),
    WorkloadName.COPY: ("the answer repeats the prompt", _copy),
}
