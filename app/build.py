"""The only place where objects are made and joined."""

import logging
import os
from functools import partial

import psutil

from app.settings import Settings
from models.card import Format
from models.fit import machine_memory
from models.store import Store
from runtimes.pool import ModelPool, PoolSettings

# Without a budget of the user's own, models may take this share of the memory that is free.
_FREE_SHARE = 0.8
_EXECUTORS = {Format.GGUF: "runtimes.llamacpp.executor:load"}

log = logging.getLogger("runner.models")


def build_host(settings: Settings) -> ModelPool:
    """All local models, as the settings want them."""
    return ModelPool(
        Store(settings.models_dir),
        PoolSettings(
            memory=partial(_memory, settings.memory_budget),
            executors=_EXECUTORS,
            ctx=settings.ctx,
            parallel=settings.parallel,
            threads=_threads(),
            keep_alive_s=settings.keep_alive_s,
            max_queue=settings.max_queue,
        ),
        log.info,
    )


def _memory(budget: int | None, taken: int) -> int:
    """What loaded models may take together: the user's budget, or a share of what they have and what
    is free."""
    return budget or int((taken + machine_memory().available) * _FREE_SHARE)


def _threads() -> int:
    """Compute threads: one a physical core, of those this process may run on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or 1, allowed or 1))
