"""Flash attention off and on: milliseconds a decode step and a prompt token take, by depth.

GOMP_SPINCOUNT=2000 python bench/engine/flash.py MODEL.gguf [THREADS]

Two contexts of one process take turns, measurement by measurement, so that what else the machine
does falls on both; each figure is the median of its measurements. The ratio of CPU time says what a
wall clock on a busy machine may not.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.kv import KvType
from runtimes.llamacpp import binding as c

DEPTHS, SEQUENCES, STEPS, ROUNDS = (64, 1024, 3000), (1, 4), 4, 7
CHUNKS, PROMPT_DEPTHS, PROMPT_ROUNDS = (64, 128, 512), (0, 2000), 5
MAX_ROWS = 512

Taken = tuple[float, float]


class Clock:
    """Milliseconds of wall and of CPU time for each of `parts`, since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self, parts: int) -> Taken:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return wall * 1e3 / parts, cpu * 1e3 / parts


class Bench:
    """A context whose first sequence holds a prompt, which the others share."""

    def __init__(self, model: c.Model, threads: int, *, flash: bool) -> None:
        context = c.new_context(
            model,
            cells=4096,
            sequences=max(SEQUENCES),
            max_rows=MAX_ROWS,
            max_outputs=max(SEQUENCES),
            threads=threads,
            unified=True,
            swa_full=True,
            kv_type=KvType.F16,
            flash=flash,
        )
        if context is None:
            raise SystemExit("no memory for a context")
        self.context = context
        self.memory = c.memory(context)
        self.batch = c.Batch(MAX_ROWS)

    def decode(self) -> None:
        if self.batch.decode(self.context):
            raise SystemExit("a step failed")

    def fill(self, depth: int) -> None:
        """Let the first sequence hold `depth` tokens and the others nothing."""
        for seq in range(1, max(SEQUENCES)):
            c.seq_remove(self.memory, seq)
        held = c.seq_range(self.memory, 0)[1] + 1
        c.seq_remove(self.memory, 0, depth, -1)
        for start in range(min(held, depth), depth, MAX_ROWS):
            self.batch.clear()
            self.batch.add([5] * min(MAX_ROWS, depth - start), start, 0, 1)
            self.decode()

    def steps(self, depth: int, sequences: int) -> Taken:
        """What a step takes that gives every sequence a token."""
        for seq in range(1, sequences):
            c.seq_copy(self.memory, 0, seq, 0, depth)
        clock = Clock()
        for done in range(STEPS):
            self.batch.clear()
            for seq in range(sequences):
                self.batch.add([7], depth + done, seq, 1)
            self.decode()
        taken = clock.read(STEPS)
        self.fill(depth)
        return taken

    def chunk(self, depth: int, size: int) -> Taken:
        """What a token takes of a prompt's chunk."""
        self.batch.clear()
        self.batch.add([9] * size, depth, 0, 1)
        clock = Clock()
        self.decode()
        taken = clock.read(size)
        c.seq_remove(self.memory, 0, depth, -1)
        return taken


def compare(pair: tuple[Bench, Bench], rounds: int, take: Callable[[Bench], Taken]) -> str:
    """The medians of both contexts' measurements, taken by turns after one that does not count."""
    off, on = pair
    taken = [(*take(off), *take(on)) for _ in range(rounds + 1)][1:]
    wall_off, cpu_off, wall_on, cpu_on = (
        statistics.median(column) for column in zip(*taken, strict=True)
    )
    return f"{wall_off:.2f} | {wall_on:.2f} | {wall_on / wall_off:.2f} | {cpu_on / cpu_off:.2f}"


def measure(pair: tuple[Bench, Bench], depth: int) -> None:
    """Print the rows of one depth."""
    for bench in pair:
        bench.fill(depth)
    for n in SEQUENCES if depth in DEPTHS else ():
        figures = compare(pair, ROUNDS, lambda b, n=n: b.steps(depth, n))
        print(f"| step, {n} sequences | {depth} | {figures} |", flush=True)
    for n in CHUNKS if depth in PROMPT_DEPTHS else ():
        figures = compare(pair, PROMPT_ROUNDS, lambda b, n=n: b.chunk(depth, n))
        print(f"| token, chunks of {n} | {depth} | {figures} |", flush=True)


def main() -> None:
    log = c.start()
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    model = c.load_model(
        Path(sys.argv[1]), extra_buffers=True, gpu_layers=-1, progress=lambda _: None
    )
    if model is None:
        raise SystemExit(log.last_error())
    pair = (
        Bench(model, threads, kv_type=KvType.F16, flash=False),
        Bench(model, threads, kv_type=KvType.F16, flash=True),
    )
    print("| | depth | off (ms) | on (ms) | on / off | on / off, CPU |")
    print("|---|---|---|---|---|---|")
    for depth in sorted({*PROMPT_DEPTHS, *DEPTHS}):
        measure(pair, depth)
    for bench in pair:
        c.free_context(bench.context)
    c.free_model(model)


if __name__ == "__main__":
    main()
