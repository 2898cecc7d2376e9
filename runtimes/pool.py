"""All local models as one runtime: loaded at first use, kept while they are used, within a
budget."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from models.card import Format, ModelCard
from models.chat import Event, Loading, Request, Text
from models.errors import (
    DoesNotFit,
    EngineBusy,
    EngineFailed,
    ModelNotFound,
    RunnerError,
)
from models.fit import human_bytes
from models.gguf import read_file
from models.header import GgufHeader
from runtimes.base import Embeddings, EngineStats, LoadState, ModelInfo
from runtimes.loading import load_worker
from runtimes.local import LocalModel
from runtimes.messages import MEMORY_KINDS, Ready
from runtimes.plan import Partner, PoolSettings
from runtimes.sizing import CacheSize, notices, shrunk, size_cache

# A load that failed is not tried again within this time, so that a client's retries do not load a
# hopeless model for ever.
FAILURE_REMEMBERED_S = 10.0
_PROGRESS_S = 0.2


class Catalogue(Protocol):
    """Where the pool finds models by name."""

    def list(self) -> Sequence[ModelCard]: ...

    def find(self, name: str) -> ModelCard: ...


@dataclass(slots=True, eq=False)
class _Slot:
    """One model that has been asked for."""

    card: ModelCard
    state: LoadState = LoadState.ABSENT
    fraction: float = 0.0
    size: CacheSize | None = None
    on_devices: int = 0
    warned: bool = False
    model: LocalModel | None = None
    task: "asyncio.Task[LocalModel] | None" = None
    error: RunnerError | None = None
    failed_at: float = 0.0
    users: int = 0
    free: asyncio.Event = field(default_factory=asyncio.Event)
    last_used: float = field(default_factory=time.monotonic)

    @contextlib.contextmanager
    def in_use(self) -> Generator[None]:
        """Keep the model loaded meanwhile."""
        self.users += 1
        self.free.clear()
        try:
            yield
        finally:
            self.users -= 1
            self.last_used = time.monotonic()
            if not self.users:
                self.free.set()


class ModelPool:
    """See `ModelHost`. `note` is told in a line what a person may want to know."""

    def __init__(
        self, catalogue: Catalogue, settings: PoolSettings, note: Callable[[str], None]
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._note = note
        self._slots: dict[str, _Slot] = {}
        self._named: dict[str, _Slot] = {}
        self._extra_buffers = True
        self._device_memory: int | None = None
        self._draft: Partner | None = None
        self._making_room = asyncio.Lock()
        self._reaper: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ requests

    async def generate(self, request: Request) -> AsyncGenerator[Event, None]:
        """See `Runtime`. A request whose worker dies before any text came is run once more."""
        slot = self._slot(request.model)
        for last_try in (False, True):
            said = False
            try:
                with slot.in_use():
                    async for loading in self._ensure(slot):
                        yield loading
                    assert slot.model is not None
                    events = slot.model.generate(request)
                    async with contextlib.aclosing(events):
                        async for event in events:
                            said = said or isinstance(event, Text)
                            yield event
                return
            except EngineFailed:
                if said or last_try:
                    raise
                self._note(f"{slot.card.id} died before it answered; it is loaded again")

    async def load(self, model: str) -> AsyncGenerator[Loading, None]:
        """See `ModelHost`."""
        slot = self._slot(model)
        with slot.in_use():
            async for loading in self._ensure(slot):
                yield loading

    async def tokens(self, request: Request) -> tuple[int, ...]:
        """See `ModelHost`."""
        async with self.tokenizer(request.model) as model:
            return await model.tokens(request)

    async def embed(
        self, model: str, texts: Sequence[str | tuple[int, ...]], *, truncate: bool
    ) -> Embeddings:
        """See `ModelHost`."""
        async with self.tokenizer(model) as local:
            return await local.embed(texts, truncate=truncate)

    @contextlib.asynccontextmanager
    async def tokenizer(self, model: str) -> AsyncGenerator[LocalModel]:
        """See `ModelHost`."""
        slot = self._slot(model)
        with slot.in_use():
            async for _ in self._ensure(slot):
                pass
            assert slot.model is not None
            yield slot.model

    def _slot(self, name: str) -> _Slot:
        known = self._named.get(name)
        if known is not None and known.model is not None:
            return known  # finding a model looks at the disk
        card = self._catalogue.find(name)
        slot = self._named[name] = self._slots.setdefault(card.id, _Slot(card))
        return slot

    async def _ensure(self, slot: _Slot) -> AsyncGenerator[Loading, None]:
        """Wait until the model is loaded. The load belongs to the pool: a waiter that leaves does
        not end it."""
        if slot.model is not None and slot.model.worker.dead.is_set():
            await self._drop(slot)
        if slot.model is not None:
            return
        if slot.task is None:
            if slot.error and time.monotonic() - slot.failed_at < FAILURE_REMEMBERED_S:
                raise slot.error
            slot.state, slot.fraction, slot.error = LoadState.LOADING, 0.0, None
            slot.task = asyncio.create_task(self._load(slot))
        task = slot.task
        yield Loading(slot.fraction)
        while not task.done():
            await asyncio.wait({task}, timeout=_PROGRESS_S)
            yield Loading(slot.fraction)
        task.result()

    async def _load(self, slot: _Slot) -> LocalModel:
        try:
            slot.model = await self._load_into_memory(slot)
            slot.state, slot.fraction = LoadState.READY, 1.0
        except RunnerError as error:
            slot.state, slot.error, slot.failed_at = LoadState.FAILED, error, time.monotonic()
            slot.size = None
            raise
        finally:
            slot.task = None
            slot.last_used = time.monotonic()
        if self._reaper is None:
            self._reaper = asyncio.create_task(self._unload_idle())
        return slot.model

    async def _load_into_memory(self, slot: _Slot) -> LocalModel:
        card, settings = slot.card, self._settings
        settings.executor(card)
        # The header is checked here, before any native code opens the file.
        header = await asyncio.to_thread(read_file, card.path)
        async with self._making_room:
            await asyncio.to_thread(self._look_around)
            slot.size = await self._make_room(slot, header)
        self._tell(slot, slot.size)
        started = time.monotonic()

        def progress(fraction: float) -> None:
            slot.fraction = fraction

        spec = settings.load_spec(card, slot.size, extra_buffers=self._extra_buffers)
        if (partner := self._partner(slot)) is not None:
            spec = partner.joined(spec, settings)
        worker = await load_worker(spec, progress, self._note)
        self._extra_buffers = worker.spec.extra_buffers
        try:
            model = await asyncio.to_thread(
                LocalModel,
                worker,
                header.chat_template,
                settings.max_queue,
                canonical_prompts=settings.canonical_prompts,
            )
        except RunnerError:
            await worker.close()
            raise
        self._settle(slot, header, worker.ready)
        size = slot.size
        self._note(
            f"loaded {card.id} in {time.monotonic() - started:.1f} s on {worker.ready.placement}: "
            f"context {model.context}, {size.cells} cells, "
            f"{human_bytes(size.bytes - size.host_cache)}, and {human_bytes(size.host_cache)} "
            "for what leaves the cache"
        )
        return model

    def _settle(self, slot: _Slot, header: GgufHeader, ready: Ready) -> None:
        """The worker has the last word: only it knows what is free on a GPU."""
        wish, size = self._settings.wish, slot.size
        assert size is not None
        slot.on_devices = sum(n for kind, n in ready.memory.items() if kind not in MEMORY_KINDS)
        # A cache is rounded up to whole pages of cells.
        if ready.cells < size.cells:
            context, cells = min(size.context, ready.context), ready.cells
            slot.size = shrunk(slot.card, header, wish, size, context, cells)
        if ready.context < size.context:
            self._note(
                f"{slot.card.id}: the context is {ready.context} instead of {size.context} tokens, "
                "which is what fits the GPU. Set --ctx to insist on more, with fewer layers there."
            )
        if self._settings.gpu_layers and ready.placement == "CPU":
            self._note(
                f"{slot.card.id}: --gpu-layers has no effect: this build of llama.cpp finds no GPU."
            )

    def _tell(self, slot: _Slot, size: CacheSize) -> None:
        """Say once a model what a person should know of its size."""
        for text in () if slot.warned else notices(slot.card, self._settings.wish, size):
            self._note(text)
        slot.warned = True

    # ------------------------------------------------------------------ memory

    def check(self, name: str) -> None:
        """Whether a model could be loaded if it were alone, before anything is started. Raises
        DoesNotFit, SettingsError or ModelInvalid. May block."""
        slot = self._slot(name)
        if slot.card.format is not Format.GGUF:
            return
        self._look_around()
        self._tell(slot, self._sized(slot, read_file(slot.card.path), ()))

    def _look_around(self) -> None:
        """Find out once what does not change: the GPUs, and the draft model. May block."""
        settings = self._settings
        if self._device_memory is None:
            self._device_memory = settings.device_memory()
        if (card := settings.draft_model) is not None and self._draft is None:
            settings.executor(card)
            self._draft = Partner.of(card, read_file(card.path), settings.wish)

    def _partner(self, slot: _Slot) -> Partner | None:
        """The model that guesses for this one."""
        draft = self._draft
        return draft if draft is not None and draft.card.id != slot.card.id else None

    def _sized(self, slot: _Slot, header: GgufHeader, others: Sequence[_Slot]) -> CacheSize:
        sizes = [(s.size, s.on_devices) for s in others if s.size]
        # The host's tier is not taken yet, and what a GPU holds never was the host's.
        held = sum(max(0, s.bytes - s.host_cache - devices) for s, devices in sizes)
        on_devices = self._device_memory or 0
        budget = self._settings.memory(held) + on_devices - sum(s.bytes for s, _ in sizes)
        partner = self._partner(slot)
        beside = partner.size.bytes if partner is not None else 0
        size = size_cache(
            slot.card,
            header,
            self._settings.wish,
            budget=budget - beside,
            on_devices=on_devices,
        )
        return replace(size, bytes=size.bytes + beside)

    async def _make_room(self, slot: _Slot, header: GgufHeader) -> CacheSize:
        """Unload idle models, the longest unused first, until this one fits."""
        while True:
            others = [s for s in self._slots.values() if s is not slot and s.size is not None]
            try:
                return self._sized(slot, header, others)
            except DoesNotFit:
                if not others:
                    raise
                idle = [s for s in others if not s.users and s.state is LoadState.READY]
                if not idle:
                    names = ", ".join(s.card.id for s in others)
                    raise EngineBusy(
                        f"no memory for {slot.card.id} while {names} is in use", retry_after=5
                    ) from None
                await self._drop(min(idle, key=lambda s: s.last_used))

    async def _drop(self, slot: _Slot) -> None:
        """Unload a model and end its process."""
        model, slot.model = slot.model, None
        slot.state = LoadState.ABSENT
        if model is not None:
            await model.close()
            self._note(f"unloaded {slot.card.id}")
        slot.size, slot.on_devices = None, 0

    async def _unload_idle(self) -> None:
        """Unload models that nobody has used for the keep-alive time."""
        keep = self._settings.keep_alive_s
        while True:
            await asyncio.sleep(min(1.0, keep / 2) if keep > 0 else 0.2)
            now = time.monotonic()
            for slot in list(self._slots.values()):
                idle = slot.model is not None and not slot.users
                if idle and now - slot.last_used >= keep:
                    await self._drop(slot)

    # ------------------------------------------------------------------ questions and orders

    def models(self) -> list[ModelInfo]:
        """See `ModelHost`."""
        cards = {card.id: card for card in self._catalogue.list()}
        cards |= {slot.card.id: slot.card for slot in self._slots.values() if slot.model}
        return [self._info(card) for card in cards.values()]

    def card(self, model: str) -> ModelCard:
        """See `ModelHost`."""
        return self._catalogue.find(model)

    def _info(self, card: ModelCard) -> ModelInfo:
        slot = self._slots.get(card.id) or _Slot(card)
        model = slot.model
        stats = model.worker.stats if model else EngineStats()
        expires = slot.last_used + self._settings.keep_alive_s - time.monotonic()
        return ModelInfo(
            id=card.id,
            created=int(card.modified),
            context=model.context if model else self._promised_context(card),
            trained_context=card.context_length,
            state=slot.state,
            size_bytes=card.size_bytes,
            memory_bytes=slot.size.bytes - slot.size.host_cache if slot.size else 0,
            expires_in_s=max(0.0, expires) if model and not slot.users else None,
            running=stats.running if model else 0,
            waiting=stats.waiting if model else 0,
            placement=model.worker.ready.placement if model else "",
            architecture=card.architecture,
            quantization=card.quantization,
            format=card.format.value,
            memory=model.worker.ready.memory if model else {},
            thinks=card.thinks,
            writes=card.writes,
            embeds=card.embeds,
        )

    def _promised_context(self, card: ModelCard) -> int | None:
        """What is known of a context before the load: what was asked for."""
        return self._settings.ctx

    def loading(self) -> bool:
        """See `ModelHost`."""
        return any(slot.state is LoadState.LOADING for slot in self._slots.values())

    def stats(self) -> dict[str, EngineStats]:
        """See `ModelHost`."""
        return {s.card.id: s.model.worker.stats for s in self._slots.values() if s.model}

    async def unload(self, model: str) -> None:
        """See `ModelHost`."""
        slot = self._slots.get(self._catalogue.find(model).id)
        if slot is None or slot.model is None:
            raise ModelNotFound(f"{model} is not loaded")
        await slot.free.wait()
        await self._drop(slot)

    async def close(self) -> None:
        """See `ModelHost`."""
        tasks: list[asyncio.Task[Any]] = [
            s.task for s in self._slots.values() if s.task is not None
        ]
        if self._reaper is not None:
            tasks.append(self._reaper)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._drop(s) for s in self._slots.values()))
