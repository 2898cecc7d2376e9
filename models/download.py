"""Fetches a plan's files: resumed across processes, checked, and shown only when complete.

The transfer is ours, since huggingface_hub begins at byte 0 again in a second process and takes a
wrong byte for right.
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from models.address import HubAddress
from models.choice import HubFile
from models.errors import ChecksumMismatch, DiskFull, HubError, HubUnreachable
from models.fit import human_bytes
from models.hub import PullPlan
from models.hubcache import RepoCache
from models.wire import open_client, refusal, unreachable

if TYPE_CHECKING:
    import httpx

_TRIES = 4  # in a row without a byte of progress
_PAUSES_S = (0.5, 1.0, 2.0)
_READ = 4 << 20
_SPARE_DISK = 32 << 20
_REPORT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one file is, in bytes; `bytes_per_s` is that of this run."""

    file: str
    done: int
    total: int
    bytes_per_s: float


Report = Callable[[Progress], None]


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


def download(
    plan: PullPlan,
    address: HubAddress,
    report: Report = lambda progress: None,
    pause: Callable[[float], None] = time.sleep,
) -> Path:
    """Fetch what is missing of the plan and return the path of its first file.

    Raises HubError and its kin. What has come by then stays, and the next call goes on from there.
    """
    cache = RepoCache(address.cache_dir, plan.repo)
    first = cache.named(plan.commit, plan.files[0])
    if cache.complete(plan.commit, plan.files):
        return first
    try:
        _check_disk(cache, plan)
        with open_client() as client:
            for file in plan.files:
                _Transfer(client, address, plan, cache, file, report, pause).run()
        cache.publish(plan.commit, plan.files, plan.revision)
    except OSError as error:
        raise _disk_error(error, address.cache_dir) from error
    return first


def _check_disk(cache: RepoCache, plan: PullPlan) -> None:
    cache.folder.mkdir(parents=True, exist_ok=True)
    needed, free = cache.missing_bytes(plan.files), shutil.disk_usage(cache.folder).free
    if needed + _SPARE_DISK > free:
        raise DiskFull(
            f"{plan.repo} needs {human_bytes(needed)} more on the disk of {cache.cache_dir}, "
            f"which has {human_bytes(free)} free. HF_HOME moves the cache."
        )


def _disk_error(error: OSError, folder: Path) -> HubError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"The disk of {folder} is full; what has come so far is kept.")
    where = error.filename or folder
    return HubError(f"Cannot write {where}: {error.strerror or error}")


@dataclass(slots=True)
class _Transfer:
    """One file on its way into the cache."""

    client: "httpx.Client"
    address: HubAddress
    plan: PullPlan
    cache: RepoCache
    file: HubFile
    report: Report
    pause: Callable[[float], None]

    def run(self) -> None:
        with self.cache.locked(self.file):
            if self.cache.has(self.file):
                self.report(Progress(self.file.path, self.file.size, self.file.size, 0.0))
                return
            path = self.cache.partial(self.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            with _Part(path, self.file, self.report) as part:
                self._fill(part)
                part.check()
            path.replace(self.cache.blob(self.file))

    def _fill(self, part: "_Part") -> None:
        """Ask for the rest until it is there, or until nothing comes any more."""
        import httpx

        url = self.address.file_url(self.plan.repo, self.plan.commit, self.file.path)
        tries, best = 0, part.done
        while part.done < self.file.size:
            try:
                self._stream(url, part)
                if part.done < self.file.size:
                    raise HubUnreachable("The connection ended early.")
            except (httpx.TransportError, HubUnreachable) as error:
                tries = tries + 1 if part.done <= best else 1
                best = max(best, part.done)
                if tries >= _TRIES:
                    raise self._gave_up(error, url, part) from error
                self.pause(_PAUSES_S[min(tries, len(_PAUSES_S)) - 1])

    def _gave_up(self, error: Exception, url: str, part: "_Part") -> HubError:
        why = error if isinstance(error, HubUnreachable) else unreachable(error, url)
        share = 100 * part.done // self.file.size
        return HubUnreachable(
            f"{self.file.path} stopped at {share} % ({human_bytes(part.done)} of "
            f"{human_bytes(self.file.size)}): {why.message} The same command goes on from there."
        )

    def _stream(self, url: str, part: "_Part") -> None:
        # No If-Range: the address names a commit, so the content cannot change, the host behind
        # the redirect has etags of its own, and the checksum has the last word.
        headers = {**self.address.headers, "Accept-Encoding": "identity"}
        if part.done:
            headers["Range"] = f"bytes={part.done}-"
        with self.client.stream("GET", url, headers=headers) as answer:
            if answer.status_code == 416:
                part.restart()
                raise HubUnreachable("The hub refused to go on from there.")
            if answer.status_code >= 400:
                raise refusal(
                    answer.status_code, answer.headers, self.plan.repo, self.address, self.file.path
                )
            if part.done and not _continues(
                answer.status_code, answer.headers, part.done, self.file.size
            ):
                part.restart()
                if answer.status_code != 200:
                    raise HubUnreachable("The hub sent another part than was asked for.")
            for piece in answer.iter_raw():
                part.add(piece)


def _continues(status: int, headers: Mapping[str, str], start: int, total: int) -> bool:
    """Whether a partial answer is the one that was asked for."""
    return (
        status == 206
        and headers.get("content-range", "").startswith(f"bytes {start}-")
        and (headers["content-range"].endswith((f"/{total}", "/*")))
    )


class _Part:
    """The unfinished file, and the checksum of what it holds."""

    def __init__(self, path: Path, file: HubFile, report: Report) -> None:
        self._path = path
        self._file = file
        self._report = report
        self._out = path.open("a+b")
        self._digest = _new_digest(file)
        self.done = 0
        self._reread()
        self._start, self._begun, self._reported = self.done, time.monotonic(), 0.0

    def __enter__(self) -> "_Part":
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()

    def _reread(self) -> None:
        """Take in what an earlier process left."""
        size = os.fstat(self._out.fileno()).st_size
        if size > self._file.size:
            self.restart()
            return
        self._out.seek(0)
        while piece := self._out.read(_READ):
            self._digest.update(piece)
            self.done += len(piece)

    def restart(self) -> None:
        """Forget what has come."""
        self._out.truncate(0)
        self._digest = _new_digest(self._file)
        self.done = self._start = 0

    def add(self, piece: bytes) -> None:
        if self.done + len(piece) > self._file.size:
            self._discard()
            raise ChecksumMismatch(
                f"{self._file.path}: more bytes came than the {self._file.size} that the hub "
                "announced, so the checksum cannot be right. Pull again."
            )
        self._out.write(piece)
        self._digest.update(piece)
        self.done += len(piece)
        now = time.monotonic()
        if now - self._reported >= _REPORT_EVERY_S or self.done == self._file.size:
            self._reported = now
            rate = (self.done - self._start) / max(now - self._begun, 1e-3)
            self._report(Progress(self._file.path, self.done, self._file.size, rate))

    def check(self) -> None:
        """Compare the checksum, and make the bytes last. Raises ChecksumMismatch."""
        found = self._digest.hexdigest()
        if self._file.key and found != self._file.key:
            self._discard()
            raise ChecksumMismatch(
                f"{self._file.path}: wrong checksum ({found[:12]}… came, {self._file.key[:12]}… "
                "was announced). The bad copy is deleted; pull again."
            )
        self._out.flush()
        os.fsync(self._out.fileno())

    def _discard(self) -> None:
        self._out.close()
        self._path.unlink(missing_ok=True)


def _new_digest(file: HubFile) -> _Digest:
    """SHA-256 for large files; for small ones what git calls a blob's name."""
    if file.sha256:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
