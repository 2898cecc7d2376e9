"""Drafts from repetition, against a plain search."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.lookup import GRAMS, PromptLookup
from runtimes.radix import Tokens


def ids(tokens: Sequence[int]) -> Tokens:
    return np.array(tokens, np.int32)


def search(tokens: Sequence[int], most: int) -> list[int]:
    """What `PromptLookup` promises, word by word."""
    for gram in GRAMS:
        ending = tokens[-gram:]
        for at in range(len(tokens) - 1, gram - 1, -1):
            if len(ending) == gram and tokens[at - gram : at] == ending:
                return list(tokens[at : at + most])
    return []


# Few different tokens, so that endings are found again; and some at the far end of a vocabulary.
few = st.lists(st.one_of(st.integers(0, 2), st.integers(262_140, 262_143)), max_size=80)


@given(few, st.integers(1, 8))
def test_a_proposal_is_what_a_plain_search_finds(tokens: list[int], most: int) -> None:
    assert list(PromptLookup().propose(ids(tokens), most).tokens) == search(tokens, most)


@given(few, few, st.lists(st.integers(1, 40), min_size=1))
def test_slices_of_any_size_give_the_same_index(
    prompt: list[int], answer: list[int], slices: list[int]
) -> None:
    lookup = PromptLookup()
    sizes = iter(slices * len(prompt))
    while not lookup.index(ids(prompt), next(sizes, 1)):
        pass
    known = list(prompt)
    assert list(lookup.propose(ids(known), 4).tokens) == search(known, 4)
    for token in answer:
        known.append(token)
        assert list(lookup.propose(ids(known), 4).tokens) == search(known, 4)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(50, 3000))
def test_long_prompts_are_found_in_as_well(seed: int, length: int) -> None:
    tokens = np.random.default_rng(seed).integers(0, 30, length).tolist()
    assert list(PromptLookup().propose(ids(tokens), 9).tokens) == search(tokens, 9)


def test_a_long_prompt_is_read_over_several_steps_and_proposes_nothing_until_then() -> None:
    lookup = PromptLookup(slice_tokens=100)
    known = ids([*range(150), *range(150)])
    assert [len(lookup.propose(known, 4).tokens) for _ in range(4)] == [0, 0, 4, 4]


def test_the_grade_tells_how_long_an_ending_was_found_again() -> None:
    def grade(same: int) -> int:
        return PromptLookup().propose(ids([*range(100, 120), *range(120 - same, 120)]), 1).grade

    # The repeated ending is preceded by 119, which 120 - same is not preceded by.
    assert [grade(n) for n in (2, 3, 4, 7, 8, 12)] == [0, 0, 1, 1, 2, 2]
