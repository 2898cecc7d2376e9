"""The disk tier of one model's KV memory: a thread that writes its files, and some that read them.

Whoever computes never waits for a disk: writes are queued (and given up where the disk cannot
follow), reads are asked for ahead and go first. A disk that refuses is told once and left alone for
a while.
"""

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtimes import kvfiles
from runtimes.kvfiles import Entry, FileUnusable, Key
from runtimes.messages import DiskSpec

# After a write has failed no other is tried for this long.
_REST_S = 60.0
_PRUNE_EVERY_S = 600.0
# Memory that waits to be written, at most.
QUEUE_BYTES = 1 << 30
# Reading and checking are as fast as there are threads for them.
READERS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class _Write:
    entry: Entry
    payload: bytes


Deliver = Callable[[memoryview | None], None]


class _Buffers:
    """Memory to read into, used again: a system takes longer to make fresh pages than to fill
    them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: list[memoryview] = []

    def take(self, size: int) -> memoryview:
        """A buffer of so many bytes, with whatever is in it."""
        with self._lock:
            for at, buffer in enumerate(self._spare):
                if len(buffer) == size:
                    return self._spare.pop(at)
        return memoryview(bytearray(size))

    def give_back(self, buffer: memoryview) -> None:
        """Nobody reads what is in it any more."""
        with self._lock:
            self._spare.append(buffer)
            del self._spare[:-READERS]

    def clear(self) -> None:
        """Nothing is read for now."""
        with self._lock:
            self._spare.clear()


class DiskCache:
    """See the module. `note` is told in a line what a person should know."""

    def __init__(
        self,
        spec: DiskSpec,
        root: Key,
        about: dict[str, str],
        note: Callable[[str], None],
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self._top, self._spec, self._root = spec.folder, spec, root
        self._about, self._note = about, note
        self._folder: Path | None = None
        self._reading = 0
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="kv-read")
        self._buffers = _Buffers()
        self._queue_bytes = queue_bytes
        self._writes: OrderedDict[Key, _Write] = OrderedDict()
        self._gone: set[Key] = set()
        self._used: dict[Key, None] = {}
        self._stamp = 0
        # What is on the disk or queued, as far as this process knows.
        self._held: set[Key] = set()
        self._queued = 0
        self._written = 0
        self._pruned = time.monotonic()
        self._reviewed = False
        self._rest_until = 0.0
        self._told = self._told_spoilt = False
        self._closing = False
        self._busy = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True, name="kv-disk")

    def open(self) -> list[Entry]:
        """Make the folder, drop what is too old, list what is usable, start the thread."""
        entries: list[Entry] = []
        try:
            kvfiles.prune(self._top, self._spec.size, self._spec.retention_s)
            self._folder = kvfiles.open_folder(self._top, self._root, self._about)
            entries = list(kvfiles.scan(self._folder, self._root))
        except OSError as error:
            self._complain(error)
        self._held = {entry.key for entry in entries}
        self._thread.start()
        return entries

    # ------------------------------------------------------------------ orders

    def write(self, entry: Entry, payload: bytes) -> None:
        """Queue an entry; dropped where too much waits already or the disk rests."""
        with self._wake:
            resting = time.monotonic() < self._rest_until
            full = self._queued + entry.size > self._queue_bytes
            if resting or full or self._closing or entry.key in self._writes:
                return
            self._writes[entry.key] = _Write(entry, payload)
            self._held.add(entry.key)
            self._gone.discard(entry.key)
            self._queued += entry.size
            self._wake.notify_all()

    def holds(self, key: Key) -> bool:
        """Whether the disk has an entry, or will. Other processes may have removed it since."""
        with self._wake:
            return key in self._held

    def reviewed(self) -> bool:
        """Whether `holds` may have changed for many since this was asked last."""
        with self._wake:
            reviewed, self._reviewed = self._reviewed, False
            return reviewed

    def read(self, entry: Entry, deliver: Deliver) -> None:
        """Queue a read; `deliver` is called on a thread of the disk's, with None where the file is
        gone or bad."""
        with self._wake:
            if not self._closing:
                self._reading += 1
                self._readers.submit(self._answer, entry, deliver)
                return
        deliver(None)

    def give_back(self, payload: memoryview) -> None:
        """What was read is not needed any more."""
        self._buffers.give_back(payload)

    def touch(self, key: Key) -> None:
        """Take note that an entry was used, after all others."""
        with self._wake:
            if key in self._held:
                self._used.pop(key, None)
                self._used[key] = None

    def remove(self, key: Key) -> None:
        """Have an entry's file removed."""
        with self._wake:
            self._unqueue(key)
            self._held.discard(key)
            self._used.pop(key, None)
            self._gone.add(key)
            self._wake.notify_all()

    def _unqueue(self, key: Key) -> None:
        if (write := self._writes.pop(key, None)) is not None:
            self._queued -= write.entry.size

    def flush(self, timeout: float) -> bool:
        """Wait until all that was queued is done; False where it took longer."""
        end = time.monotonic() + timeout
        with self._wake:
            while self._writes or self._reading or self._gone or self._busy:
                if not self._wake.wait(max(0.0, end - time.monotonic())):
                    return False
        return True

    def close(self, timeout: float = 2.0) -> None:
        """Write what is queued, for `timeout` seconds at most, and end the thread."""
        self.flush(timeout)
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._thread.join(timeout)
        self._readers.shutdown()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task()
        self._tend()

    def _next(self) -> Callable[[], None] | None:
        """What to do next, while nobody waits for a read."""
        with self._wake:
            self._busy = False
            self._wake.notify_all()
            while self._reading or not (self._writes or self._gone or self._used or self._closing):
                if not self._wake.wait(_PRUNE_EVERY_S):
                    return self._tend
            if self._closing:
                return None
            self._busy = True
            if not self._writes:
                return self._tend
            _, write = self._writes.popitem(last=False)
            self._queued -= write.entry.size
            return partial(self._store, write)

    def _answer(self, entry: Entry, deliver: Deliver) -> None:
        deliver(self._try(entry))
        with self._wake:
            self._reading -= 1
            if not self._reading:
                self._wake.notify_all()

    def _try(self, entry: Entry) -> memoryview | None:
        payload: memoryview | None = None
        try:
            payload = self._load(entry)
        except FileUnusable as error:
            name = kvfiles.file_name(entry.key)
            with self._wake:
                told, self._told_spoilt = self._told_spoilt, True
            if not told:  # once: a failing disk spoils many
                self._note(
                    f"the cached KV memory in {name} cannot be used: {error}; "
                    "it is removed, and so are others like it"
                )
            self.remove(entry.key)
        except (OSError, MemoryError):
            # another process removed it, or the disk fails: computing always works
            with self._wake:
                self._held.discard(entry.key)
        return payload

    def _load(self, entry: Entry) -> memoryview:
        with self._wake:
            queued, gone = self._writes.get(entry.key), entry.key in self._gone
        if queued is not None:
            return memoryview(queued.payload)
        if self._folder is None or gone:
            raise FileNotFoundError
        buffer = self._buffers.take(entry.size)
        return kvfiles.read_payload(self._folder, self._root, entry, buffer)

    def _store(self, task: _Write) -> None:
        try:
            self._put(task)
        except OSError as error:
            with self._wake:
                self._held.discard(task.entry.key)
            self._complain(error)
        if self._written > self._spec.size // 20 or self._overdue:
            self._tend()

    def _put(self, task: _Write) -> None:
        if self._folder is not None:
            with contextlib.suppress(FileNotFoundError):  # somebody emptied the cache: begin again
                self._written += kvfiles.write_file(
                    self._folder, self._root, task.entry, task.payload
                )
                return
        self._folder = kvfiles.open_folder(self._top, self._root, self._about)
        with self._wake:
            self._held = {task.entry.key, *self._writes}
            self._reviewed = True
        self._written += kvfiles.write_file(self._folder, self._root, task.entry, task.payload)

    def _complain(self, error: OSError) -> None:
        with self._wake:
            self._rest_until = time.monotonic() + _REST_S
            self._held.difference_update(self._writes)
            self._writes.clear()
            self._queued = 0
            self._reviewed = True
        if not self._told:
            self._told = True
            self._note(
                f"KV memory is not kept on disk: {self._top}: {error.strerror or error}. "
                "Everything else works; free space or turn it off with --no-disk-cache."
            )

    # ------------------------------------------------------------------ upkeep

    @property
    def _overdue(self) -> bool:
        return time.monotonic() - self._pruned > _PRUNE_EVERY_S

    def _tend(self) -> None:
        """Remove what is to go, stamp what was used, and now and then keep the budget."""
        with self._wake:
            if not self._reading:
                self._buffers.clear()
            gone, self._gone = self._gone, set()
            used = [key for key in self._used if key not in self._writes]
            self._used = {key: None for key in self._used if key in self._writes}
        if self._folder is None:
            return
        for key in gone:
            with contextlib.suppress(OSError):
                (self._folder / kvfiles.file_name(key)).unlink()
        for key in used:
            # stamps of their own, since a file system's clock has coarse ticks
            self._stamp = max(time.time_ns(), self._stamp + 1000)
            with contextlib.suppress(OSError):
                path = self._folder / kvfiles.file_name(key)
                os.utime(path, ns=(self._stamp, self._stamp))
        if self._written > self._spec.size // 20 or self._overdue:
            self._prune(self._folder)

    def _prune(self, folder: Path) -> None:
        kvfiles.prune(self._top, self._spec.size, self._spec.retention_s)
        self._pruned, self._written = time.monotonic(), 0
        found = kvfiles.keys(folder)
        with self._wake:
            self._held &= found | self._writes.keys()
            self._reviewed = True
