"""The only place where objects are made and joined."""

import logging
import os
import re
from functools import partial
from pathlib import Path

import psutil

from app.library import Library
from app.settings import DRAFT_FROM_TEXT, DRAFT_OFF, Settings
from models.card import Format, ModelCard, Origin
from models.errors import ModelNotFound, RequestInvalid
from models.fit import machine_memory
from models.names import parse
from models.store import Store
from runtimes.llamacpp.devices import device_memory
from runtimes.messages import DiskSpec
from runtimes.plan import PoolSettings
from runtimes.pool import Catalogue, ModelPool

# Without a budget of the user's own, models may take this share of the memory that is free.
_FREE_SHARE = 0.8
_EXECUTORS = {Format.GGUF: "runtimes.llamacpp.model:load"}

log = logging.getLogger("runner.models")


def build_host(settings: Settings, named: str | None = None) -> ModelPool:
    """The local models for whoever reaches the port: those that are installed, by name, and the one
    that was named when the server was started. Raises ModelNotFound, and DoesNotFit or
    SettingsError where that one could never be loaded with these settings."""
    store = Store(settings.models_dir)
    pool = _pool(Installed(store, store.find(named) if named else None), settings, store)
    if named:
        pool.check(named)
    return pool


def build_private_host(settings: Settings) -> ModelPool:
    """The local models for the person at the keyboard, who may also name a file."""
    store = Store(settings.models_dir)
    return _pool(store, settings, store)


def build_library(settings: Settings) -> Library:
    """Where clients of the port fetch and remove models."""
    return Library(Store(settings.models_dir), local_only=settings.local_only)


class Installed:
    """A store that finds no files by their path: a client has no business with the server's disk.
    `own` is the exception, a file that the server's owner named."""

    def __init__(self, store: Store, own: ModelCard | None = None) -> None:
        self._store = store
        self._own = own if own is not None and own.origin is Origin.PATH else None

    def list(self) -> "list[ModelCard]":
        return [*([self._own] if self._own else []), *self._store.list()]

    def find(self, name: str) -> ModelCard:
        """See `Store.find`."""
        if self._own is not None and name in _names(self._own):
            return self._own
        if _is_path(name):
            raise ModelNotFound(f"{name} is a path; ask for a model by its name (GET /v1/models).")
        return self._store.find(name)


def _names(own: ModelCard) -> tuple[str, ...]:
    """A file's path, and what people call it: its name without the ending and the part's number."""
    stem = own.path.name.removesuffix(".gguf")
    return (own.id, str(own.path), own.path.name, stem, re.sub(r"-\d{5}-of-\d{5}$", "", stem))


def _is_path(name: str) -> bool:
    try:
        return parse(name).path is not None
    except RequestInvalid:
        return False


def _pool(catalogue: Catalogue, settings: Settings, store: Store) -> ModelPool:
    model_drafts = settings.draft not in (DRAFT_FROM_TEXT, DRAFT_OFF)
    return ModelPool(
        catalogue,
        PoolSettings(
            memory=partial(_memory, settings.memory_budget),
            executors=_EXECUTORS,
            ctx=settings.ctx,
            parallel=settings.parallel,
            kv_type=settings.kv_type,
            cache_ram=settings.cache_ram,
            device_memory=partial(_device_memory, settings),
            gpu_layers=settings.gpu_layers,
            threads=_threads(),
            keep_alive_s=settings.keep_alive_s,
            max_queue=settings.max_queue,
            disk=_disk(settings),
            canonical_prompts=settings.canonical_prompts,
            drafts=settings.draft != DRAFT_OFF,
            draft_model=store.find(settings.draft) if model_drafts else None,
        ),
        log.info,
    )


def _disk(settings: Settings) -> DiskSpec | None:
    if not settings.disk_cache:
        return None
    return DiskSpec(
        kv_folder(settings), settings.disk_cache_bytes, settings.cache_retention_h * 3600
    )


def kv_folder(settings: Settings) -> Path:
    """Where KV memory is kept on disk."""
    return settings.cache_dir / "kv"


def _device_memory(settings: Settings) -> int:
    """What models may take of GPUs beside that. A budget of the user's own is for all memory."""
    if settings.memory_budget or settings.gpu_layers == 0:
        return 0
    return device_memory()


def _memory(budget: int | None, taken: int) -> int:
    """What loaded models may take together: the user's budget, or a share of what they have and
    what is free."""
    return budget or int((taken + machine_memory().available) * _FREE_SHARE)


def _threads() -> int:
    """Compute threads: one a physical core, of those this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or 1, allowed or 1))
