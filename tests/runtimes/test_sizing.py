"""How large a cache is made."""

from pathlib import Path

import pytest

from models.card import Format, ModelCard, Origin
from models.errors import DoesNotFit, SettingsError
from models.fit import estimate
from models.gguf import read_file
from models.header import GgufHeader
from models.kv import KvType
from runtimes.sizing import (
    EXTRA_CELLS,
    TIER_MOST,
    TIER_SHARE,
    Wish,
    notices,
    shrunk,
    size_cache,
)
from tests.weights import CONTEXT, Kind, write_model

PLENTY = 1 << 34


def known(tmp_path: Path, kind: Kind = "llama") -> tuple[ModelCard, GgufHeader]:
    path = write_model(tmp_path / f"{kind}.gguf", kind)
    header = read_file(path)
    size = path.stat().st_size
    card = ModelCard(kind, path, (path,), Format.GGUF, Origin.PATH, size, kind, "F32", CONTEXT)
    return card, header


def test_the_model_s_own_context_is_taken_where_it_fits(tmp_path: Path) -> None:
    size = size_cache(*known(tmp_path), Wish(parallel=2), budget=PLENTY)
    assert (size.context, size.cells) == (CONTEXT, 2 * CONTEXT)


def test_cells_beyond_one_context_are_bounded(tmp_path: Path) -> None:
    size = size_cache(*known(tmp_path), Wish(parallel=64), budget=PLENTY)
    assert size.cells == CONTEXT + EXTRA_CELLS


def test_with_little_memory_the_context_shrinks_and_stays_within_it(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    budget = estimate(header, 700).total
    size = size_cache(card, header, Wish(None, 4), budget=budget)
    assert size.context < CONTEXT
    assert size.bytes <= budget
    assert size.quiet == 0


def test_an_asked_context_is_exact_or_refused_with_the_numbers(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    size = size_cache(card, header, Wish(777, 1), budget=PLENTY)
    assert (size.context, size.cells) == (777, 777)
    with pytest.raises(DoesNotFit, match="context of 900000 tokens, and 100 MB are free"):
        size_cache(card, header, Wish(900_000, 1), budget=100_000_000)


def test_a_window_is_kept_whole_where_it_costs_no_context(tmp_path: Path) -> None:
    card, header = known(tmp_path, "gemma3")
    whole = size_cache(card, header, Wish(1 << 20, 1), budget=PLENTY)
    assert whole.full_window
    budget = estimate(header, 1 << 20, sequences=17, full_window=True).total - 1
    tight = size_cache(card, header, Wish(1 << 20, 1), budget=budget)
    assert not tight.full_window
    assert tight.bytes < whole.bytes


def test_what_is_left_is_the_hosts_tier(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    sized = size_cache(card, header, Wish(512, 1), budget=PLENTY)
    none = size_cache(card, header, Wish(512, 1, cache_ram=0), budget=PLENTY)
    assert none.host_cache == 0
    assert sized.host_cache == int((PLENTY - none.bytes) * TIER_SHARE)
    assert sized.bytes == none.bytes + sized.host_cache
    assert size_cache(card, header, Wish(512, 1), budget=1 << 40).host_cache == TIER_MOST


def test_a_tier_that_was_asked_for_never_costs_context(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    asked = Wish(cache_ram=1 << 30)
    assert size_cache(card, header, asked, budget=PLENTY).host_cache == 1 << 30
    budget = estimate(header, CONTEXT * 4, weights_bytes=card.size_bytes).total
    tight = size_cache(card, header, asked, budget=budget)
    assert tight.context == size_cache(card, header, Wish(cache_ram=0), budget=budget).context
    assert tight.host_cache < 1 << 30
    assert tight.bytes <= budget
    assert any("--cache-ram 1.1 GB does not fit" in text for text in notices(card, asked, tight))


def test_the_tier_is_the_hosts_and_not_a_gpus(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    asked = Wish(512, 1, cache_ram=1 << 33)
    both = size_cache(card, header, asked, budget=PLENTY, on_devices=PLENTY - (1 << 30))
    assert both.host_cache == 1 << 30


def test_a_quantized_cache_needs_heads_of_whole_blocks(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"have 16 numbers.*--kv-type f16"):
        size_cache(*known(tmp_path), Wish(kv_type=KvType.Q8_0), budget=PLENTY)


def test_a_refusal_names_what_would_fit(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    with pytest.raises(DoesNotFit) as error:
        size_cache(card, header, Wish(900_000, 1), budget=100_000_000)
    assert "(weights 665 kB, cache 461 MB, computing " in error.value.message
    assert f"Use --ctx {CONTEXT}, which fits, a smaller quantization" in error.value.message
    assert "--kv-type" not in error.value.message  # its heads have 16 numbers


def test_a_shrunk_context_and_one_beyond_the_training_are_told(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    wish = Wish(parallel=1)
    size = size_cache(card, header, wish, budget=estimate(header, 700).total)
    assert f"the context is {size.context} of the model's {CONTEXT} tokens" in "".join(
        notices(card, wish, size)
    )
    assert size.least_context == size.context
    wish = Wish(2 * CONTEXT)
    size = size_cache(card, header, wish, budget=PLENTY)
    assert size.least_context == size.context == 2 * CONTEXT
    assert f"was trained for {CONTEXT} tokens" in "".join(notices(card, wish, size))
    wish = Wish()
    assert notices(card, wish, size_cache(card, header, wish, budget=PLENTY)) == []


def test_a_model_that_was_loaded_smaller_counts_for_less(tmp_path: Path) -> None:
    card, header = known(tmp_path)
    wish = Wish(parallel=2, cache_ram=0)
    size = size_cache(card, header, wish, budget=PLENTY)
    less = shrunk(card, header, wish, size, 1024, 1024)
    assert (less.context, less.cells) == (1024, 1024)
    exact = size_cache(card, header, Wish(1024, 1, cache_ram=0), budget=PLENTY)
    assert 0 < less.bytes < size.bytes
    assert abs(less.bytes - exact.bytes) < 100_000  # rows of logits for another eight sequences
