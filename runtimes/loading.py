"""Start a model's worker, and step around builds that this processor traps."""

import signal
from collections.abc import Callable
from dataclasses import replace

from models.errors import EngineFailed
from runtimes.client import WorkerClient, WorkerDied, start
from runtimes.messages import LoadSpec

# The native build uses AMX wherever the processor advertises it, also where using it is not allowed
# (ggml-org/llama.cpp pull request 26954). Without these instructions the build works everywhere.
REINSTALL = (
    "CMAKE_ARGS=\"-DCMAKE_C_FLAGS='-mno-amx-tile -mno-amx-int8 -mno-amx-bf16' "
    "-DCMAKE_CXX_FLAGS='-mno-amx-tile -mno-amx-int8 -mno-amx-bf16'\" "
    "pip install --force-reinstall --no-deps --no-cache-dir llama-cpp-python==0.3.36"
)


async def load_worker(
    spec: LoadSpec, progress: Callable[[float], None], note: Callable[[str], None]
) -> WorkerClient:
    """A worker whose model has passed its first step. Where that step dies of an illegal
    instruction, tries once without repacked weights, which use the widest instructions, and says so
    to `note`. Raises EngineFailed with the command that mends the build where that dies too."""
    try:
        return await start(spec, progress, note)
    except WorkerDied as death:
        if death.signal != signal.SIGILL or not spec.extra_buffers:
            raise
    note(
        "This build of llama.cpp uses instructions that this processor does not allow; "
        f"loading without repacked weights (prompts are read slower). To mend it: {REINSTALL}"
    )
    try:
        return await start(replace(spec, extra_buffers=False), progress, note)
    except WorkerDied as death:
        if death.signal != signal.SIGILL:
            raise
        raise EngineFailed(
            "This build of llama.cpp dies of an illegal instruction (SIGILL) on this processor, "
            f"also without repacked weights. Reinstall it without AMX: {REINSTALL}"
        ) from death
