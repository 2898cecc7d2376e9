"""The block store against a model of it: a plain dict of what was added."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.blocks import BLOCK, BlockStore
from runtimes.diskcache import DiskCache
from runtimes.kvfiles import Entry, Kind, Tokens, block_key, keys, root_key
from runtimes.messages import DiskSpec

IDENTITY = "these weights"
ROOT = root_key(IDENTITY)
LARGE = 1 << 30


def sequence(seed: int, length: int) -> Tokens:
    """Tokens of a family: those of one seed begin alike, and odd ones part from even ones late."""
    tokens = np.arange(length, dtype=np.int32) % 250
    tokens[300:] += seed % 2 * 1000
    tokens[590:] += seed % 5 * 2000
    return tokens


def payload_of(tokens: Tokens, end: int) -> bytes:
    """What the memory of these tokens would be: nothing else could pass for it."""
    return b"%d:" % end + tokens.tobytes()


def pieces_of(tokens: Tokens) -> Iterator[tuple[Tokens, Tokens, int]]:
    """A sequence's blocks: what is before, their tokens, their ends."""
    for start in range(0, len(tokens), BLOCK):
        piece = tokens[start : start + BLOCK]
        yield tokens[:start], piece, start + len(piece)


def add(store: BlockStore, tokens: Tokens) -> None:
    parent = store.root
    for _, piece, end in pieces_of(tokens):
        parent = store.add_block(parent, piece, end, payload_of(piece, end))


def take(store: BlockStore, entries: tuple[Entry, ...]) -> list[bytes | None]:
    """All payloads, as a job would take them."""
    fetch = store.fetch(entries)
    came: list[bytes | None] = []
    while not fetch.done:
        store.wait(30, lambda: fetch.ready)
        assert fetch.ready
        payload = fetch.take()[1]
        came.append(bytes(payload) if payload is not None else None)
    return came


def intact(store: BlockStore, tokens: Tokens) -> int:
    """How much of a sequence can be had; every payload is that of its tokens."""
    path, length = store.path(tokens)
    had = 0
    for entry, payload in zip(path, take(store, path), strict=True):
        if payload is None:
            return had
        start = entry.end - len(entry.tokens)
        shared = min(length, entry.end) - start
        assert entry.tokens[:shared].tolist() == tokens[start : start + shared].tolist()
        assert payload == payload_of(entry.tokens, entry.end)
        had = start + shared
    return had


def disk_cache(top: Path, size: int = LARGE) -> DiskCache:
    return DiskCache(DiskSpec(top, size, 3600), ROOT, {"model": "a.gguf"}, lambda _: None)


@pytest.fixture
def store() -> BlockStore:
    return BlockStore(IDENTITY, LARGE)


# ---------------------------------------------------------------------- paths


@settings(max_examples=60, deadline=None)
@given(
    added=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 800)), max_size=12),
    asked=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 900)), min_size=1, max_size=8),
)
def test_a_path_is_always_the_longest_prefix_there_is(
    added: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    store = BlockStore(IDENTITY, LARGE)
    known: set[tuple[int, ...]] = set()  # the model: every prefix of what was added
    for seed, length in added:
        tokens = sequence(seed, length)
        add(store, tokens)
        known |= {tuple(tokens[:n].tolist()) for n in range(1, length + 1)}
    for seed, length in asked:
        tokens = sequence(seed, length)
        longest = max(
            (n for n in range(1, length + 1) if tuple(tokens[:n].tolist()) in known), default=0
        )
        path, found = store.path(tokens)
        assert found == longest
        assert [e.end for e in path[:-1]] == [BLOCK * (i + 1) for i in range(len(path) - 1)]
        assert intact(store, tokens) == longest


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_a_path_is_right_at_the_ends_of_blocks(store: BlockStore, length: int) -> None:
    add(store, sequence(0, length))
    for asked in (length - 1, length, length + 1):
        path, found = store.path(sequence(0, asked))
        assert found == min(asked, length)
        assert len(path) == -(-found // BLOCK)


def test_nothing_is_known_of_what_was_never_added(store: BlockStore) -> None:
    assert store.path(sequence(0, 10)) == ((), 0)
    assert store.path(sequence(0, 0)) == ((), 0)
    add(store, sequence(0, 300))
    assert store.path(sequence(0, 300)[1:]) == ((), 0)


def test_tokens_in_another_shape_are_the_same_tokens(store: BlockStore) -> None:
    tokens = np.repeat(sequence(0, 300), 2)[::2]
    add(store, tokens)
    assert store.path(np.ascontiguousarray(tokens))[1] == 300
    assert store.path(tokens.astype(np.int64).astype(np.int32))[1] == 300
    tokens[:] = 7  # the store has its own
    assert store.path(sequence(0, 300))[1] == 300


def test_a_longer_block_replaces_the_tails_it_contains_and_no_other(store: BlockStore) -> None:
    for length in (20, 60):
        add(store, sequence(0, length))
    other = sequence(0, 60)
    other[40:] += 5
    add(store, other)
    assert store.stats().known_entries == 2  # 20 is contained in 60
    add(store, sequence(0, BLOCK))
    assert store.stats().known_entries == 2
    assert (intact(store, sequence(0, 60)), intact(store, other)) == (60, 60)


def test_of_a_tail_that_was_replaced_no_file_is_left(tmp_path: Path) -> None:
    store = BlockStore(IDENTITY, LARGE, disk_cache(tmp_path))
    for length in (20, 60, BLOCK):
        add(store, sequence(0, length))
    store.close()
    assert len(keys(tmp_path / ROOT.hex())) == 1


def test_the_same_block_twice_is_one(store: BlockStore) -> None:
    add(store, sequence(0, 600))
    before = store.stats()
    add(store, sequence(0, 600))
    assert store.stats() == before


def test_a_block_is_not_kept_without_what_comes_before_it(store: BlockStore) -> None:
    store.add_block(b"x" * 16, sequence(0, BLOCK), 2 * BLOCK, b"payload")
    assert store.stats().known_entries == 0


# ---------------------------------------------------------------------- checkpoints


@settings(max_examples=60, deadline=None)
@given(
    added=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 800)), max_size=12),
    asked=st.tuples(st.integers(0, 9), st.integers(1, 900)),
    least=st.integers(0, 700),
    limit=st.integers(0, 1000),
)
def test_the_deepest_checkpoint_within_bounds_is_found(
    added: list[tuple[int, int]], asked: tuple[int, int], least: int, limit: int
) -> None:
    store = BlockStore(IDENTITY, LARGE)
    for seed, length in added:
        store.add_checkpoint(sequence(seed, length), payload_of(sequence(seed, length), length))
    tokens = sequence(*asked)
    ends = [
        n
        for seed, n in added
        if least < n <= min(limit, len(tokens)) and np.array_equal(sequence(seed, n), tokens[:n])
    ]
    found = store.checkpoint(tokens, least, limit)
    assert (found.end if found else None) == max(ends, default=None)
    if found is not None:
        assert take(store, (found,)) == [payload_of(tokens[: found.end], found.end)]


# ---------------------------------------------------------------------- budgets


@settings(max_examples=60, deadline=None)
@given(
    things=st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(1, 800)), max_size=30),
    budget=st.integers(0, 12_000),
)
def test_host_memory_stays_within_its_shares_and_what_is_lost_is_unknown(
    things: list[tuple[bool, int, int]], budget: int
) -> None:
    store = BlockStore(IDENTITY, budget)
    shares = {Kind.BLOCK: budget - budget // 4, Kind.CHECKPOINT: budget // 4}
    for checkpoint, seed, length in things:
        tokens = sequence(seed, length)
        if checkpoint:
            store.add_checkpoint(tokens, payload_of(tokens, length))
        else:
            add(store, tokens)
        for kind, shelf in store._host.items():
            held = sum(map(len, shelf._payloads.values()))
            assert held == shelf.size <= shares[kind]
        assert store.stats().known_entries == store.stats().host_entries
        assert intact(store, tokens) == store.path(tokens)[1]
        for entry in store._entries.values():  # all of it can be reached
            assert entry.kind is Kind.CHECKPOINT or entry.parent in {store.root, *store._entries}


def test_of_a_sequence_longer_than_the_host_tier_the_beginning_is_kept() -> None:
    store = BlockStore(IDENTITY, 4 * 1040 * 4 // 3)
    add(store, sequence(0, 100))
    add(store, sequence(1, 8 * BLOCK))
    assert intact(store, sequence(1, 8 * BLOCK)) == 4 * BLOCK
    assert store.stats().known_entries == 4


def test_a_payload_larger_than_the_host_tier_costs_nobody_his_place() -> None:
    store = BlockStore(IDENTITY, 8000)
    add(store, sequence(0, 300))
    store.add_block(store.root, sequence(0, BLOCK) + 7, BLOCK, b"x" * 10_000)
    assert intact(store, sequence(0, 300)) == 300
    assert store.path(sequence(0, BLOCK) + 7)[1] == 0


def test_the_least_recently_used_leaves_first() -> None:
    store = BlockStore(IDENTITY, 3 * 1040 * 4 // 3)
    for first in (1, 2, 3):
        add(store, sequence(0, BLOCK) + first * 1000)
    assert intact(store, sequence(0, BLOCK) + 1000) == BLOCK  # used again
    add(store, sequence(0, BLOCK) + 4000)
    had = [intact(store, sequence(0, BLOCK) + first * 1000) for first in (1, 2, 3, 4)]
    assert had == [BLOCK, 0, BLOCK, BLOCK]


# ---------------------------------------------------------------------- with a disk


def test_without_host_memory_the_disk_does_it_all(tmp_path: Path) -> None:
    store = BlockStore(IDENTITY, 0, disk_cache(tmp_path))
    add(store, sequence(0, 700))
    store.add_checkpoint(sequence(0, 700), b"state")
    assert intact(store, sequence(0, 700)) == 700  # even before it is written
    assert store.stats().host_bytes == 0
    store.close()
    again = BlockStore(IDENTITY, 0, disk_cache(tmp_path))
    assert intact(again, sequence(0, 650)) == 650
    point = again.checkpoint(sequence(0, 701), 0, 701)
    assert point is not None
    assert take(again, (point,)) == [b"state"]
    assert again.stats().restored_disk == 4
    again.close()


def test_what_is_lost_is_forgotten_and_its_children_wait_for_its_return(tmp_path: Path) -> None:
    store = BlockStore(IDENTITY, 0, disk_cache(tmp_path))
    tokens = sequence(0, 3 * BLOCK)
    add(store, tokens)
    assert store.disk is not None
    assert store.disk.flush(30)
    lost = block_key(ROOT, tokens[:BLOCK])
    (tmp_path / ROOT.hex() / f"{lost.hex()}.kv").unlink()
    assert intact(store, tokens) == 0
    assert store.path(tokens) == ((), 0)
    assert lost not in store
    add(store, tokens)
    assert intact(store, tokens) == 3 * BLOCK
    store.close()


def test_what_is_computed_again_while_it_is_fetched_is_not_forgotten(tmp_path: Path) -> None:
    store = BlockStore(IDENTITY, LARGE, disk_cache(tmp_path))
    add(store, sequence(0, 100))
    path, _ = store.path(sequence(0, 100))
    store._host[Kind.BLOCK].remove(path[0].key)
    assert store.disk is not None
    assert store.disk.flush(30)
    (tmp_path / ROOT.hex() / f"{path[0].key.hex()}.kv").unlink()
    fetch = store.fetch(path)
    store.wait(30, lambda: fetch.ready)
    store.forget(path[0])
    add(store, sequence(0, 100))
    assert fetch.take()[1] == payload_of(sequence(0, 100), 100)
    assert intact(store, sequence(0, 100)) == 100
    store.close()


def test_the_index_does_not_outgrow_the_disk(tmp_path: Path) -> None:
    store = BlockStore(IDENTITY, 3000, disk_cache(tmp_path, size=20_000))
    assert store.disk is not None
    for first in range(1, 300):
        add(store, sequence(0, 100) + 1000 * first)
        assert store.disk.flush(30)
    add(store, sequence(0, 100))
    assert store.stats().known_entries <= 60  # some 35 files fit
    store.close()


def test_where_nothing_can_be_written_only_host_memory_counts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = BlockStore(IDENTITY, 3000, disk_cache(tmp_path / "file" / "kv"))
    for first in range(1, 50):
        add(store, sequence(0, 100) + 1000 * first)
        assert store.stats().known_entries == store.stats().host_entries
    assert intact(store, sequence(0, 100) + 49_000) == 100
    store.close()


def test_files_that_this_store_would_not_make_are_left_alone(tmp_path: Path) -> None:
    store = BlockStore(IDENTITY, LARGE, disk_cache(tmp_path))
    long = sequence(0, 2 * BLOCK)
    assert store.disk is not None
    for tokens, end in ((long, len(long)), (long[:10], 11)):
        store.disk.write(Entry(Kind.BLOCK, block_key(ROOT, tokens), ROOT, tokens, end, 3), b"odd")
    store.close()
    again = BlockStore(IDENTITY, LARGE, disk_cache(tmp_path))
    assert again.path(long) == ((), 0)
    again.close()


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 1 << 32))
def test_two_processes_on_one_folder_are_served_only_right_payloads(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    top, rng = tmp_path_factory.mktemp("kv"), random.Random(seed)

    def begin() -> BlockStore:
        return BlockStore(IDENTITY, rng.choice([0, 3000]), disk_cache(top, size=15_000))

    stores = [begin(), begin()]
    for _ in range(60):
        which = rng.randrange(2)
        tokens = sequence(rng.randrange(10), rng.randrange(1, 800))
        match rng.randrange(8):
            case 0 | 1 | 2:
                add(stores[which], tokens)
            case 3:
                stores[which].close()
                stores[which] = begin()
            case 4:
                stores[which].add_checkpoint(tokens, payload_of(tokens, len(tokens)))
            case 5:
                point = stores[which].checkpoint(tokens, 0, len(tokens))
                if point is not None:
                    right = payload_of(tokens[: point.end], point.end)
                    assert take(stores[which], (point,))[0] in (right, None)
            case _:
                intact(stores[which], tokens)
    for store in stores:
        store.close()
