"""Executors that die, or come short, in the ways real ones do. Loaded by worker
processes, by name."""

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runtimes.base import Pick, Row
from runtimes.llamacpp.executor import LlamaExecutor
from runtimes.llamacpp.model import LlamaModel
from runtimes.llamacpp.model import load_writer as real_load
from runtimes.messages import LoadSpec


def load_without_wide_instructions(spec: LoadSpec, progress: Callable[[float], None]) -> LlamaModel:
    """Traps as a build with forbidden instructions does, unless they are avoided."""
    if spec.extra_buffers:
        os.kill(os.getpid(), signal.SIGILL)
    return real_load(spec, progress)


def load_never(spec: LoadSpec, progress: Callable[[float], None]) -> LlamaModel:
    """Traps whatever is avoided."""
    os.kill(os.getpid(), signal.SIGILL)
    raise AssertionError("dead already")


def load_on_a_small_gpu(spec: LoadSpec, progress: Callable[[float], None]) -> Any:
    """Loads as a worker does whose GPU has room for 512 cells."""
    model: Any = real_load(replace(spec, cells=512, context=512), progress)
    model.placement = lambda: "CUDA0"
    return model


def load_and_die_once(spec: LoadSpec, progress: Callable[[float], None]) -> Any:
    """Dies in the first step of the first process only: a file beside the model remembers."""
    model: Any = real_load(spec, progress)
    model.probe()
    model.executor = _Fragile(model.executor, spec.path.with_suffix(".died"))
    model.probe = lambda: 0.001
    return model


class _Fragile:
    def __init__(self, inner: LlamaExecutor, died: Path) -> None:
        self._inner, self._died, self._steps = inner, died, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def step(self, rows: Sequence[Row], pick: Pick) -> None:
        self._steps += 1
        if self._steps == 1 and not self._died.exists():
            self._died.touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        self._inner.step(rows, pick)
