"""Milliseconds that drawing takes in a step, for many rows at once and for row after row.

    python bench/engine/sampling.py [THREADS]

The logits are made up: most of a row is a normal spread, a few hundred entries stand out as those
of a language model do. The median of several steps, whose logits are not in the processor's caches.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.chat import Sampling
from runtimes.choosing import Choose, ThreadedChoice
from runtimes.sampling import Run, Sampler, draw_runs
from tests.runtimes.perrow import draw

ROWS, SIZES = (1, 8, 32), (49_152, 151_936, 262_144)
HOW = {
    "greedy": Sampling(temperature=0),
    "T 0.7, top-k 40, top-p 0.95": Sampling(0.7, 40, 0.95, 0.0),
    "T 0.7, top-p 0.95": Sampling(0.7, 0, 0.95, 0.0),
    "T 1, min-p 0.05": Sampling(1.0, 0, 1.0, 0.05),
    "T 1": Sampling(1.0, 0, 1.0, 0.0),
}
FloatRows = NDArray[np.float32]


def matrix(n: int, size: int, seed: int) -> FloatRows:
    """Rows that look like a model's."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((n, size), np.float32) * 2
    for row in logits:
        row[rng.choice(size, 300, replace=False)] += 14 * rng.random(300, np.float32) ** 3
    return logits


def median_ms(steps: Sequence[FloatRows], once: Callable[[FloatRows], object]) -> float:
    """`once` over each of the steps."""
    taken: list[float] = []
    for logits in steps:
        began = time.perf_counter()
        once(logits)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:]) * 1e3


def measure(steps: Sequence[FloatRows], how: Sampling, choose: Choose) -> tuple[float, float]:
    """Row after row, and all at once."""
    n = len(steps[0])
    streams = [np.random.Generator(np.random.PCG64(i)) for i in range(n)]
    samplers = [Sampler(replace(how, seed=i), None) for i in range(n)]

    def row_after_row(logits: FloatRows) -> None:
        for row, stream in zip(logits, streams, strict=True):
            draw(row, how, stream)

    before = median_ms(steps[:4], row_after_row)
    runs = [Run(sampler) for sampler in samplers]
    return before, median_ms(steps, lambda logits: draw_runs(runs, logits, choose))


def main() -> None:
    choose = ThreadedChoice(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print("| | " + " | ".join(f"{size:,}, {n}" for size in SIZES for n in ROWS) + " |")
    print("|---|" + "---|" * (len(SIZES) * len(ROWS)))
    cells: dict[str, list[str]] = {name: [] for name in HOW}
    for size in SIZES:
        for n in ROWS:
            steps = [matrix(n, size, seed) for seed in range(9)]
            for name, how in HOW.items():
                before, after = measure(steps, how, choose)
                cells[name].append(f"{before:.2f} → {after:.2f}")
    for name, row in cells.items():
        print(f"| {name} | " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
