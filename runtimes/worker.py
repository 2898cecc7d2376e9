"""The process of one loaded model.

The main thread owns every call that computes. One thread reads the pipe and queues the orders, but
for texts to tokenize, which a few others do: a long prompt among them keeps no order waiting. One
writes the pipe, so that a step's news are packed while the next one is computed. When the pipe
closes, the process ends.
"""

import contextlib
import importlib
import json
import os
import queue
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Protocol

from models.errors import RunnerError
from runtimes.base import Cut, Executor
from runtimes.blocks import BlockStore
from runtimes.choosing import ThreadedChoice
from runtimes.diskcache import QUEUE_BYTES, DiskCache
from runtimes.draft_model import DraftModel, same_vocabulary
from runtimes.embedding import Embedder, Embedding
from runtimes.engine import Engine
from runtimes.kvfiles import root_key
from runtimes.messages import (
    Cancel,
    Embed,
    Encode,
    Encoded,
    FromWorker,
    LoadFailed,
    LoadProgress,
    LoadSpec,
    Notice,
    Ready,
    Stop,
    Submit,
    ToWorker,
    Vocab,
)


class LoadedModel(Protocol):
    """What a runtime's `load` returns: itself as a model that writes, where it does, and what turns
    texts into vectors."""

    @property
    def embedder(self) -> Embedder | None: ...

    def writing(self) -> "WritingModel | None": ...

    def vocab(self) -> Vocab: ...

    def encode(self, text: str, add_bos: bool, specials: bool) -> tuple[int, ...]: ...

    def probe(self) -> float: ...

    def memory(self) -> dict[str, int]: ...

    def identity(self) -> dict[str, str]: ...

    def placement(self) -> str: ...

    def release(self) -> None: ...


class WritingModel(LoadedModel, Protocol):
    """`executor` is the cache that requests share, `quiet` one in which each has its own."""

    @property
    def executor(self) -> Executor: ...

    def quiet(self) -> Executor | None: ...


# An engine without work for this long has the leisure to prepare what a request may need.
_LEISURE_S = 1.0
# At the end, copying to the store may take so long.
_PUT_AWAY_S = 1.0
_SWITCH_S = 0.0002
# Threads that choose tokens, of as many as half the cores: more of them wait for the interpreter.
_CHOOSERS = 4
# And threads that tokenize: agents' prompts of 16k tokens, 100 ms each, come many at once.
_TOKENIZERS = 4

Load = Callable[[LoadSpec, Callable[[float], None]], LoadedModel]


def main(connection: Connection, spec: LoadSpec) -> None:
    """The process's entry. Reports a failed load as a message, and dies of nothing else."""
    _set_up()
    pipe = _Pipe(connection)
    try:
        _serve(pipe, spec)
    finally:
        pipe.flush()


def _serve(pipe: "_Pipe", spec: LoadSpec) -> None:
    def note(text: str) -> None:
        pipe.send(Notice(text))

    # The small one first: what is left of a GPU is then the large one's to fill.
    partner = _load_partner(spec.draft, note) if spec.draft is not None else None
    try:
        model = _load(spec, lambda fraction: pipe.send(LoadProgress(fraction)))
        token_seconds = model.probe()
        vocab = model.vocab()
    except RunnerError as error:
        pipe.send(LoadFailed(error.message))
        return
    if partner is not None and not _guesses_for(partner, vocab, spec, note):
        partner.release()
        partner = None
    memory = Counter(model.memory()) + Counter(partner.memory() if partner is not None else {})
    ready = _ready(model, vocab, spec, dict(memory))
    embedding, orders = Embedding(model.embedder), queue.SimpleQueue[ToWorker]()
    tokenizers = max(1, min(_TOKENIZERS, spec.threads // 2))
    reader = threading.Thread(target=_read, args=(pipe, model, orders, tokenizers), daemon=True)
    if (writing := model.writing()) is None:
        pipe.send(ready)
        reader.start()
        _only_embed(embedding, pipe, orders)
    else:
        store = _store(writing, spec, note)
        engine = Engine(
            writing.executor,
            vocab,
            spec.parallel,
            ready.context,
            writing.quiet,
            store=store,
            drafts=spec.drafts,
            token_seconds=token_seconds,
            draft_model=_draft_model(partner, vocab, spec),
            encode=lambda text: model.encode(text, False, False),
            choose=ThreadedChoice(min(_CHOOSERS, spec.threads // 2)),
        )
        pipe.send(ready)
        reader.start()
        _run(engine, embedding, pipe, orders)
        if store is not None:
            _put_away(engine)
            store.close()
    model.release()
    if partner is not None:
        partner.release()


def _set_up() -> None:
    """What holds for the whole process."""
    # Signals to the whole group (Ctrl-C, a service manager's stop) are the server's to act on; it
    # ends its workers through the pipe.
    os.setsid()
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    # Compute threads that spin while they wait starve each other as soon as anything else runs
    # (docs/BENCHMARKS.md, "A busy machine"); these spin shortly, then sleep.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    # Every call into the library gives the interpreter away; threads of the disk and the pipe must
    # not keep it for the default 5 ms, which is longer than a step on a GPU.
    sys.setswitchinterval(_SWITCH_S)


def _ready(model: LoadedModel, vocab: Vocab, spec: LoadSpec, memory: dict[str, int]) -> Ready:
    writing, embedder = model.writing(), model.embedder
    embeds = embedder.limit if embedder is not None else 0
    cells = writing.executor.caps.cells if writing is not None else spec.cells
    return Ready(
        vocab,
        min(spec.context, cells) if writing is not None else embeds,
        cells,
        memory,
        model.placement(),
        writes=writing is not None,
        embeds=embeds,
        vector_size=embedder.size if embedder is not None else 0,
    )


def _load(spec: LoadSpec, progress: Callable[[float], None]) -> LoadedModel:
    module, _, function = spec.executor.partition(":")
    load: Load = getattr(importlib.import_module(module), function)
    return load(spec, progress)


def _load_partner(spec: LoadSpec, note: Callable[[str], None]) -> WritingModel | None:
    """The model that guesses. What keeps it from that keeps nobody from an answer."""
    try:
        model = _load(spec, lambda _: None)
    except RunnerError as error:
        note(f"{spec.path.name} does not draft: {error.message}")
        return None
    if (writing := model.writing()) is None:
        note(f"{spec.path.name} does not draft: it generates no text.")
        model.release()
    return writing


def _guesses_for(
    partner: WritingModel, vocab: Vocab, spec: LoadSpec, note: Callable[[str], None]
) -> bool:
    """Whether a loaded draft model suits the model; says so where it does not."""
    assert spec.draft is not None
    caps, names = partner.executor.caps, f"{spec.draft.path.name} cannot draft for {spec.path.name}"
    if not same_vocabulary(partner.vocab(), vocab):
        note(f"{names}: their vocabularies differ. Take a smaller model of the same family.")
        return False
    if caps.cut is not Cut.ANY or not caps.forks:
        note(f"{names}: wrong guesses cannot be taken back from its kind of memory.")
        return False
    return True


def _draft_model(partner: WritingModel | None, vocab: Vocab, spec: LoadSpec) -> DraftModel | None:
    if partner is None or spec.draft is None:
        return None
    return DraftModel(partner.executor, len(vocab.pieces), spec.draft.context)


def _store(model: WritingModel, spec: LoadSpec, note: Callable[[str], None]) -> BlockStore | None:
    """The tiers below the live cache, as far as they are wanted."""
    if not spec.host_cache_bytes and spec.disk is None:
        return None
    identity = model.identity()
    text = json.dumps(identity, sort_keys=True)
    about = {"model": spec.path.name, **identity}
    disk: DiskCache | None = None
    if spec.disk is not None:
        # What waits to be written is in the host's tier as well, up to a point.
        queue_bytes = max(QUEUE_BYTES, spec.host_cache_bytes // 2)
        disk = DiskCache(spec.disk, root_key(text), about, note, queue_bytes)
    return BlockStore(text, spec.host_cache_bytes, disk)


class _Pipe:
    """The worker's end of the pipe. Any thread may send; nobody waits for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outbox: queue.SimpleQueue[FromWorker | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def send(self, message: FromWorker) -> None:
        self._outbox.put(message)

    def receive(self) -> ToWorker:
        return self._connection.recv()

    def flush(self) -> None:
        """Send no more, and wait until everything is sent."""
        self._outbox.put(None)
        self._writer.join()

    def _write(self) -> None:
        # The server may be gone; then the reader ends the process.
        with contextlib.suppress(BrokenPipeError):
            while (message := self._outbox.get()) is not None:
                self._connection.send(message)


def _read(
    pipe: _Pipe, model: LoadedModel, orders: queue.SimpleQueue[ToWorker], tokenizers: int
) -> None:
    pool = ThreadPoolExecutor(tokenizers, thread_name_prefix="tokenize")

    def encode(asked: Encode) -> None:
        try:
            tokens = model.encode(asked.text, asked.add_bos, asked.specials)
        except BaseException:  # whoever asked would wait for ever; a dead worker is started again
            traceback.print_exc()
            os._exit(1)
        pipe.send(Encoded(asked.id, tokens))

    while True:
        try:
            message = pipe.receive()
        except (EOFError, OSError):
            os._exit(0)  # the server is gone, and nobody waits for the step under way
        if isinstance(message, Encode):
            pool.submit(encode, message)
        else:
            orders.put(message)


def _only_embed(embedding: Embedding, pipe: _Pipe, orders: queue.SimpleQueue[ToWorker]) -> None:
    while True:
        for order in _drain(orders, wait=embedding.idle, patience=None):
            match order:
                case Embed():
                    embedding.add(order)
                case Cancel(id=order_id):
                    embedding.cancel(order_id)
                case Stop():
                    return
                case Submit() | Encode():
                    raise AssertionError("a model that does not write is not asked to")
        if (answer := embedding.step()) is not None:
            pipe.send(answer)


def _run(
    engine: Engine, embedding: Embedding, pipe: _Pipe, orders: queue.SimpleQueue[ToWorker]
) -> None:
    patience: float | None = _LEISURE_S
    while True:
        idle = engine.idle and embedding.idle
        came = _drain(orders, wait=idle and not engine.untidy, patience=patience)
        if not came and idle:
            if not engine.tidy():
                engine.use_leisure()
                patience = None
            continue
        for order in came:
            match order:
                case Submit():
                    engine.submit(order)
                case Embed():
                    embedding.add(order)
                case Cancel(id=job_id):
                    engine.cancel(job_id)
                    embedding.cancel(job_id)
                case Stop():
                    return
                case Encode():
                    raise AssertionError("the reader answers this")
        if (news := engine.admit()) is not None:
            pipe.send(news)
        if not engine.idle:
            pipe.send(engine.step())
        if (answer := embedding.step()) is not None:
            pipe.send(answer)


def _put_away(engine: Engine) -> None:
    """Whoever stops right after an answer still keeps it, if that does not take long."""
    end = time.monotonic() + _PUT_AWAY_S
    while time.monotonic() < end and engine.put_away():
        pass


def _drain(
    orders: queue.SimpleQueue[ToWorker], *, wait: bool, patience: float | None
) -> list[ToWorker]:
    """All orders that have come; with `wait`, at least one, unless none comes for `patience` s."""
    taken: list[ToWorker] = []
    with contextlib.suppress(queue.Empty):
        if wait:
            taken.append(orders.get(timeout=patience))
        while True:
            taken.append(orders.get_nowait())
    return taken
