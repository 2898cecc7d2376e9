"""The host tier of one model's KV memory, and the index of what the disk holds beside it.

Attention memory is kept in blocks of at most 256 tokens, each stored once under a hash over all
tokens up to its end; what cannot be cut by position (a window, recurrent state) is kept whole, as
checkpoints. Blocks form a tree: only full ones have children.
"""

import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from runtimes.diskcache import Deliver, DiskCache
from runtimes.kvfiles import (
    KEY_BYTES,
    Entry,
    Key,
    Kind,
    Tokens,
    block_key,
    root_key,
    token_bytes,
)
from runtimes.radix import common_prefix

BLOCK = 256
# How many payloads are read from the disk ahead of whoever uses them.
_AHEAD = 8
# Of the host tier, checkpoints take at most this share.
_CHECKPOINT_SHARE = 0.25

_NOTHING: Tokens = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What the tiers below the live cache hold and did."""

    host_bytes: int = 0
    host_entries: int = 0
    known_entries: int = 0
    restored_host: int = 0
    restored_disk: int = 0


class BlockStore:
    """See the module. One thread calls everything; the disk's thread only delivers."""

    def __init__(self, identity: str, host_bytes: int, disk: DiskCache | None = None) -> None:
        self.root = root_key(identity)
        self.disk = disk
        self._entries: dict[Key, Entry] = {}
        self._children: dict[tuple[Key, int], list[Key]] = {}
        self._lengths: Counter[int] = Counter()
        self._host = {
            Kind.BLOCK: _Shelf(host_bytes - int(host_bytes * _CHECKPOINT_SHARE)),
            Kind.CHECKPOINT: _Shelf(int(host_bytes * _CHECKPOINT_SHARE)),
        }
        self._restored = [0, 0]
        self.arrived = threading.Condition()
        for entry in disk.open() if disk is not None else ():
            if _in_place(entry):
                self._enter(entry)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def stats(self) -> StoreStats:
        shelves = self._host.values()
        return StoreStats(
            sum(s.size for s in shelves), sum(map(len, shelves)), len(self._entries),
            *self._restored,
        )  # fmt: skip

    # ------------------------------------------------------------------ questions

    def path(self, tokens: Tokens) -> tuple[tuple[Entry, ...], int]:
        """The blocks that hold the longest prefix of `tokens`, and its length. The last block may
        hold other tokens beyond it."""
        found: list[Entry] = []
        parent, at = self.root, 0
        while at < len(tokens):
            best, shared = self._best_child(parent, tokens[at : at + BLOCK])
            if best is None:
                break
            found.append(best)
            at += shared
            if shared < BLOCK:
                break
            parent = best.key
        return tuple(found), at

    def _best_child(self, parent: Key, tokens: Tokens) -> tuple[Entry | None, int]:
        best: Entry | None = None
        most = 0
        for key in self._children.get((parent, int(tokens[0])), ()):
            entry = self._entries[key]
            shared = common_prefix(entry.tokens, tokens)
            if shared > most or (best is not None and shared == most and entry.size < best.size):
                best, most = entry, shared
        return best, most

    def checkpoint(self, tokens: Tokens, least: int, limit: int) -> Entry | None:
        """The deepest checkpoint of a prefix of `tokens` with a length in (least, limit]."""
        best: Entry | None = None
        hashed, at = hashlib.sha256(b"checkpoint" + self.root), 0
        data = token_bytes(tokens)
        for length in sorted(n for n in self._lengths if n <= min(limit, len(tokens))):
            hashed.update(data[4 * at : 4 * length])
            at = length
            entry = self._entries.get(hashed.copy().digest()[:KEY_BYTES])
            if entry is not None and length > least:
                best = entry
        return best

    def checkpoint_key(self, tokens: Tokens) -> Key:
        """The name of the checkpoint at the end of `tokens`."""
        hashed = hashlib.sha256(b"checkpoint" + self.root)
        hashed.update(token_bytes(tokens))
        return hashed.digest()[:KEY_BYTES]

    # ------------------------------------------------------------------ changes

    def add_block(self, parent: Key, tokens: Tokens, end: int, payload: bytes) -> Key:
        """Keep the attention memory of `tokens`, the last of which ends at position `end`; not
        where what comes before them is not kept, since nobody could ever ask for it."""
        key = block_key(parent, tokens)
        if key not in self._entries and (parent == self.root or parent in self._entries):
            for other in list(self._children.get((parent, int(tokens[0])), ())):
                old = self._entries[other]
                shorter = len(old.tokens) < len(tokens)
                if shorter and common_prefix(old.tokens, tokens) == len(old.tokens):
                    self._drop(old, with_file=True)  # the new block holds all of it
            self._add(Entry(Kind.BLOCK, key, parent, tokens.copy(), end, len(payload)), payload)
        return key

    def add_checkpoint(self, tokens: Tokens, payload: bytes) -> None:
        """Keep the state at the end of `tokens`."""
        key = self.checkpoint_key(tokens)
        if key not in self._entries:
            entry = Entry(
                Kind.CHECKPOINT, key, b"\0" * KEY_BYTES, _NOTHING, len(tokens), len(payload)
            )
            self._add(entry, payload)

    def covers(self, parent: Key, tokens: Tokens) -> bool:
        """Whether some block after `parent` begins with `tokens`."""
        entry, shared = self._best_child(parent, tokens)
        return entry is not None and shared == len(tokens)

    def touch(self, entries: Sequence[Entry]) -> None:
        """Take note of the use of a path, or of its end; deepest first, so that no block is kept
        longer than what it needs."""
        chain = [entry.key for entry in reversed(entries)]
        first = next((e for e in entries if e.kind is Kind.BLOCK), None)
        chain += self._before(first) if first is not None else ()
        for key in chain:
            for shelf in self._host.values():
                shelf.touch(key)
            if self.disk is not None:
                self.disk.touch(key)

    def touch_path(self, key: Key) -> None:
        """Take note of the use of a block and all before it."""
        if (entry := self._entries.get(key)) is not None:
            self.touch((entry,))

    def _before(self, entry: Entry) -> Iterator[Key]:
        """The blocks that a block needs, backwards."""
        above = self._entries.get(entry.parent)
        while above is not None:
            yield above.key
            above = self._entries.get(above.parent)

    def _add(self, entry: Entry, payload: bytes) -> None:
        if self.disk is not None:
            self.disk.write(entry, payload)
            if self.disk.reviewed():
                self._forget_lost()
        self._enter(entry)
        self._shelve(entry, payload)

    def _shelve(self, entry: Entry, payload: bytes) -> None:
        """Keep a payload at hand. Where a path is longer than the shelf its beginning stays: the
        rest would be of no use without."""
        shelf = self._host[entry.kind]
        gone = [] if shelf.put(entry.key, payload) else [entry.key]
        for key in self._before(entry) if entry.kind is Kind.BLOCK else ():
            shelf.touch(key)
        for key in gone + shelf.trim():
            if not self._on_disk(key) and key in self._entries:
                self._drop(self._entries[key], with_file=False)

    def _on_disk(self, key: Key) -> bool:
        return self.disk is not None and self.disk.holds(key)

    def _forget_lost(self) -> None:
        """Forget what left the disk without our doing: it was pruned, or could not be written."""
        for entry in list(self._entries.values()):
            if self.in_host(entry) is None and not self._on_disk(entry.key):
                self._drop(entry, with_file=False)

    def _enter(self, entry: Entry) -> None:
        self._entries[entry.key] = entry
        if entry.kind is Kind.CHECKPOINT:
            self._lengths[entry.end] += 1
        else:
            first = int(entry.tokens[0]) if len(entry.tokens) else -1
            self._children.setdefault((entry.parent, first), []).append(entry.key)

    def forget(self, entry: Entry) -> None:
        """An entry's payload is gone."""
        if entry.key in self._entries:
            self._drop(self._entries[entry.key], with_file=False)

    def discard(self, entry: Entry) -> None:
        """An entry's payload is not what it should be: nobody shall get it again."""
        if entry.key in self._entries:
            self._drop(self._entries[entry.key], with_file=True)

    def _drop(self, entry: Entry, *, with_file: bool) -> None:
        del self._entries[entry.key]
        self._host[entry.kind].remove(entry.key)
        if entry.kind is Kind.CHECKPOINT:
            self._lengths[entry.end] -= 1
            self._lengths += Counter()  # drops what has come to nothing
        else:
            place = (entry.parent, int(entry.tokens[0]) if len(entry.tokens) else -1)
            self._children[place].remove(entry.key)
            if not self._children[place]:
                del self._children[place]
        if with_file and self.disk is not None:
            self.disk.remove(entry.key)

    # ------------------------------------------------------------------ payloads

    def fetch(self, entries: Sequence[Entry]) -> "Fetch":
        """Begin to bring payloads within reach, in order."""
        self.touch(entries)
        return Fetch(self, entries)

    def in_host(self, entry: Entry) -> bytes | None:
        return self._host[entry.kind].get(entry.key)

    def count_restored(self, *, from_disk: bool) -> None:
        self._restored[from_disk] += 1

    def wait(self, timeout: float, ready: Callable[[], bool]) -> None:
        """Wait until something arrives from the disk for which `ready` holds."""
        with self.arrived:
            self.arrived.wait_for(ready, timeout)

    def close(self) -> None:
        if self.disk is not None:
            self.disk.close()


def _in_place(entry: Entry) -> bool:
    """Whether an entry from the disk is one that this module would make."""
    count = len(entry.tokens)
    if entry.kind is Kind.CHECKPOINT:
        return count == 0 < entry.end
    return 0 < count <= BLOCK and (entry.end - count) % BLOCK == 0


class _Shelf:
    """Payloads in host memory, the least recently used leave first."""

    def __init__(self, budget: int) -> None:
        self.size = 0
        self._budget = budget
        self._payloads: OrderedDict[Key, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._payloads)

    def get(self, key: Key) -> bytes | None:
        return self._payloads.get(key)

    def touch(self, key: Key) -> None:
        if key in self._payloads:
            self._payloads.move_to_end(key)

    def put(self, key: Key, payload: bytes) -> bool:
        """Keep a payload, until `trim`. False where it is larger than the whole shelf."""
        self.remove(key)
        if len(payload) > self._budget:
            return False
        self._payloads[key] = payload
        self.size += len(payload)
        return True

    def trim(self) -> list[Key]:
        """Keep the budget. Returns the keys whose payloads had to go."""
        gone: list[Key] = []
        while self.size > self._budget:
            gone.append(next(iter(self._payloads)))
            self.remove(gone[-1])
        return gone

    def remove(self, key: Key) -> None:
        old = self._payloads.pop(key, None)
        if old is not None:
            self.size -= len(old)


@dataclass(slots=True)
class _Slot:
    entry: Entry
    payload: bytes | memoryview | None = None
    here: bool = False
    from_disk: bool = False


class Fetch:
    """Payloads on their way, handed out in order. What is in host memory is held at once; the rest
    comes from the disk, a few ahead. It is not kept here as well: its file is most likely in the
    system's memory by now."""

    def __init__(self, store: BlockStore, entries: Sequence[Entry]) -> None:
        self._store = store
        self._slots = [_Slot(entry) for entry in entries]
        self._taken = 0
        for slot in self._slots:
            slot.payload = store.in_host(slot.entry)
            slot.here = slot.payload is not None or store.disk is None
        self._lent: memoryview | None = None
        self._asked = 0
        self._ask()

    @property
    def done(self) -> bool:
        """Whether every payload was taken."""
        return self._taken == len(self._slots)

    @property
    def ready(self) -> bool:
        """Whether `take` has something to give."""
        return not self.done and self._slots[self._taken].here

    def take(self) -> tuple[Entry, bytes | memoryview | None]:
        """The next payload, valid until the next call; None where it is lost. Only when `ready`."""
        if self._lent is not None and self._store.disk is not None:
            self._store.disk.give_back(self._lent)
        self._lent = None
        slot = self._slots[self._taken]
        self._taken += 1
        payload, slot.payload = slot.payload, None
        if payload is None:  # somebody may have computed it again meanwhile
            payload, slot.from_disk = self._store.in_host(slot.entry), False
        if payload is None:
            self._store.forget(slot.entry)
        else:
            self._store.count_restored(from_disk=slot.from_disk)
            if isinstance(payload, memoryview) and not payload.readonly:
                self._lent = payload
        self._ask()
        return slot.entry, payload

    def _ask(self) -> None:
        disk = self._store.disk
        while disk is not None and self._asked < min(len(self._slots), self._taken + _AHEAD):
            slot = self._slots[self._asked]
            self._asked += 1
            if not slot.here:
                disk.read(slot.entry, self._deliverer(slot))

    def _deliverer(self, slot: _Slot) -> Deliver:
        def deliver(payload: memoryview | None) -> None:
            with self._store.arrived:
                slot.payload, slot.here, slot.from_disk = payload, True, True
                self._store.arrived.notify_all()

        return deliver
