"""The disk tier of one model's KV memory: a thread that reads and writes its files.

Whoever computes never waits for a disk: writes are queued (and given up where the disk cannot
follow), reads are asked for ahead. A disk that refuses is told once and left alone for a while.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtimes import kvfiles
from runtimes.kvfiles import Entry, FileUnusable, Key
from runtimes.messages import DiskSpec

# After a write has failed no other is tried for this long.
_REST_S = 60.0
_PRUNE_EVERY_S = 600.0
# Memory that waits to be written, at most.
_QUEUE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class _Write:
    entry: Entry
    payload: bytes


@dataclass(frozen=True, slots=True)
class _Read:
    entry: Entry
    deliver: Callable[[bytes | None], None]


class DiskCache:
    """See the module. `note` is told in a line what a person should know."""

    def __init__(
        self, spec: DiskSpec, root: Key, about: dict[str, str], note: Callable[[str], None]
    ) -> None:
        self._top, self._spec, self._root = spec.folder, spec, root
        self._about, self._note = about, note
        self._folder: Path | None = None
        self._writes: deque[_Write] = deque()
        self._reads: deque[_Read] = deque()
        self._used: dict[Key, None] = {}
        self._queued = 0
        self._written = 0
        self._rest_until = 0.0
        self._told = False
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
        self._thread.start()
        return entries

    # ------------------------------------------------------------------ orders

    def write(self, entry: Entry, payload: bytes) -> None:
        """Queue an entry; dropped where too much waits already or the disk rests."""
        with self._wake:
            resting = time.monotonic() < self._rest_until
            if self._folder is None or resting or self._queued + entry.size > _QUEUE_BYTES:
                return
            self._writes.append(_Write(entry, payload))
            self._queued += entry.size
            self._wake.notify()

    def read(self, entry: Entry, deliver: Callable[[bytes | None], None]) -> None:
        """Queue a read; `deliver` is called on the disk's thread, with None where the file is gone
        or bad."""
        with self._wake:
            self._reads.append(_Read(entry, deliver))
            self._wake.notify()

    def touch(self, key: Key) -> None:
        """Take note that an entry was used."""
        with self._wake:
            self._used[key] = None

    def remove(self, key: Key) -> None:
        """Remove an entry's file."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / kvfiles.file_name(key)).unlink()

    def flush(self, timeout: float) -> bool:
        """Wait until all that was queued is written; False where it took longer."""
        end = time.monotonic() + timeout
        with self._wake:
            while self._writes or self._reads or self._busy:
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

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        pruned = time.monotonic()
        while True:
            task = self._next()
            if task is None:
                return
            if isinstance(task, _Read):
                task.deliver(self._load(task.entry))
            elif isinstance(task, _Write):
                self._store(task)
            self._touch_all()
            now = time.monotonic()
            if self._written > self._spec.size // 20 or now - pruned > _PRUNE_EVERY_S:
                kvfiles.prune(self._top, self._spec.size, self._spec.retention_s)
                pruned, self._written = now, 0

    def _next(self) -> "_Read | _Write | str | None":
        with self._wake:
            self._busy = False
            self._wake.notify_all()
            while not (self._reads or self._writes or self._closing):
                if not self._wake.wait(_PRUNE_EVERY_S):
                    return "prune"
            if self._reads:
                self._busy = True
                return self._reads.popleft()
            if self._closing:
                return None
            self._busy = True
            write = self._writes.popleft()
            self._queued -= write.entry.size
            return write

    def _load(self, entry: Entry) -> bytes | None:
        if self._folder is None:
            return None
        try:
            return kvfiles.read_payload(self._folder, self._root, entry)
        except FileUnusable as error:
            name = kvfiles.file_name(entry.key)
            self._note(f"the cached KV memory in {name} cannot be used: {error}; it is removed")
            self.remove(entry.key)
        except OSError:
            pass  # another process removed it, or the disk fails: computing always works
        return None

    def _store(self, task: _Write) -> None:
        assert self._folder is not None
        try:
            self._written += kvfiles.write_file(self._folder, self._root, task.entry, task.payload)
        except FileNotFoundError as error:
            try:  # somebody emptied the cache: begin it again
                self._folder = kvfiles.open_folder(self._top, self._root, self._about)
            except OSError:
                self._complain(error)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        with self._wake:
            self._rest_until = time.monotonic() + _REST_S
            self._writes.clear()
            self._queued = 0
        if not self._told:
            self._told = True
            self._note(
                f"KV memory is not kept on disk: {self._top}: {error.strerror or error}. "
                "Everything else works; free space or turn it off with --no-disk-cache."
            )

    def _touch_all(self) -> None:
        with self._wake:
            used, self._used = self._used, {}
        if self._folder is not None:
            for key in used:
                with contextlib.suppress(OSError):
                    os.utime(self._folder / kvfiles.file_name(key))
