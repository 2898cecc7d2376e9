"""How large a cache is made."""

from pathlib import Path

import pytest

from models.card import Format, ModelCard, Origin
from models.errors import DoesNotFit
from models.fit import estimate
from models.gguf import read_file
from models.header import GgufHeader
from runtimes.sizing import EXTRA_CELLS, size_cache
from tests.weights import CONTEXT, Kind, write_model

PLENTY = 1 << 34


def known(tmp_path: Path, kind: Kind = "llama") -> tuple[ModelCard, GgufHeader]:
    path = write_model(tmp_path / f"{kind}.gguf", kind)
    header = read_file(path)
    size = path.stat().st_size
    card = ModelCard(kind, path, (path,), Format.GGUF, Origin.PATH, size, kind, "F32", CONTEXT)
    return card, header


def test_the_model_s_own_context_is_taken_where_it_fits(tmp_path: Path) -> None:
    size = size_cache(*known(tmp_path), budget=PLENTY, ctx=None, parallel=2)
    assert (size.context, size.cells) == (CONTEXT, 2 * CONTEXT)


def test_cells_beyond_one_context_are_bounded(tmp_path: Path) -> None:
    size = size_cache(*known(tmp_path), budget=PLENTY, ctx=None, parallel=64)
    assert size.cells == CONTEXT + EXTRA_CELLS


def test_with_little_memory_the_context_shrinks_and_stays_within_it(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    budget = estimate(header, 700).total
    size = size_cache(card, header, budget=budget, ctx=None, parallel=4)
    assert size.context < CONTEXT
    assert size.bytes <= budget
    assert size.quiet == 0


def test_an_asked_context_is_exact_or_refused_with_the_numbers(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    size = size_cache(card, header, budget=PLENTY, ctx=777, parallel=1)
    assert (size.context, size.cells) == (777, 777)
    with pytest.raises(DoesNotFit, match="context of 900000 tokens, and 100 MB are free"):
        size_cache(card, header, budget=100_000_000, ctx=900_000, parallel=1)


def test_a_window_is_kept_whole_where_it_costs_no_context(tmp_path: Path) -> None:
    card, header = known(tmp_path, "gemma3")
    whole = size_cache(card, header, budget=PLENTY, ctx=1 << 20, parallel=1)
    assert whole.full_window
    budget = estimate(header, 1 << 20, sequences=1 << 20).total - 1
    tight = size_cache(card, header, budget=budget, ctx=1 << 20, parallel=1)
    assert not tight.full_window
    assert tight.bytes < whole.bytes
