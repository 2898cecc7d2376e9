"""The process in which a chat template is rendered, and the bounds that it sets itself."""

import json
import os
import signal
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from models.errors import TemplateFailed
from models.templates import ChatTemplate

TRAITS, TEXT, REFUSED, TOO_LARGE = b"traits:", b"text:", b"refused:", b"too large:"
"""What an answer begins with."""

_STATM = Path("/proc/self/statm")
_MOST_SAID = 500


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one rendering may take. The processor's time counts, so that a busy machine refuses
    nothing; `wall_s` is for what makes no progress. `memory_bytes` is beside the process's own."""

    cpu_s: float = 2.0
    wall_s: float = 30.0
    memory_bytes: int = 512 << 20
    text_bytes: int = 128 << 20


def kernel_bounds_memory() -> bool:
    """Whether the kernel refuses a process memory beyond a limit. Where not, we look at it."""
    return _STATM.exists()


def main(pipe: Connection, bounds: Bounds, limit_memory: bool) -> None:
    """The process's entry: first the template, then conversations, until the pipe closes."""
    os.setsid()  # Ctrl-C is the server's to act on
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    if limit_memory:
        _limit_memory(bounds.memory_bytes)
    template: ChatTemplate | None = None
    with suppress(EOFError, OSError):
        while True:
            question = pipe.recv()
            # The clock's signal kills, also in the middle of an instruction.
            signal.setitimer(signal.ITIMER_PROF, bounds.cpu_s)
            try:
                if template is None:
                    template = ChatTemplate(*question)
                    answer = TRAITS + json.dumps(asdict(template.traits)).encode()
                else:
                    answer = TEXT + template.render(question).encode("utf-8", "replace")
            except Exception as error:  # foreign code: anything may come out of it
                answer = _refusal(error)
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send_bytes(answer)
            del question, answer


def _refusal(error: Exception) -> bytes:
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return TOO_LARGE
    said = error.message if isinstance(error, TemplateFailed) else f"It cannot be used: {error}"
    return REFUSED + said[:_MOST_SAID].encode("utf-8", "replace")


def _limit_memory(size: int) -> None:
    import resource

    pages = int(_STATM.read_text("ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + size
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
