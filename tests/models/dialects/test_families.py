"""Every family's texts mean what they should, in whatever pieces they come."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.dialects.reading import Called, read
from tests.models.dialects.samples import SAMPLES, Sample


def named(sample: Sample) -> str:
    return f"{sample.dialect.name}: {sample.about}"


every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=named)


@every_sample
def test_a_text_means_what_it_should(sample: Sample) -> None:
    assert read(sample.dialect, [sample.text], prompt_end=sample.prompt_end) == list(sample.means)


@every_sample
def test_arguments_are_a_json_object(sample: Sample) -> None:
    for spoken in read(sample.dialect, [sample.text], prompt_end=sample.prompt_end):
        if isinstance(spoken, Called):
            assert isinstance(json.loads(spoken.arguments), dict)


@every_sample
def test_it_means_the_same_letter_by_letter(sample: Sample) -> None:
    assert read(sample.dialect, sample.text, prompt_end=sample.prompt_end) == list(sample.means)


@every_sample
def test_it_means_the_same_wherever_it_is_cut_in_two(sample: Sample) -> None:
    for cut in range(len(sample.text) + 1):
        pieces = [sample.text[:cut], sample.text[cut:]]
        assert read(sample.dialect, pieces, prompt_end=sample.prompt_end) == list(sample.means)


@given(st.sampled_from(SAMPLES), st.data())
@settings(max_examples=300, deadline=None)
def test_it_means_the_same_in_any_pieces(sample: Sample, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(sample.text)), max_size=12).map(sorted))
    edges = [0, *cuts, len(sample.text)]
    pieces = [sample.text[a:b] for a, b in pairwise(edges)]
    assert read(sample.dialect, pieces, prompt_end=sample.prompt_end) == list(sample.means)
