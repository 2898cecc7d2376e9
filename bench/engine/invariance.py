"""How much a sequence's logits change with its company and its place in the cache.

    python bench/engine/invariance.py MODEL.gguf

Prints the largest logit difference, over 24 decode steps after a 300-token prompt, between a run in
an empty cache and runs beside other sequences: in the shared cache, and in the quiet one, which the
engine uses for requests whose text must repeat.
"""

import random
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runtimes.base import Executor, Logits, Row  # noqa: E402
from runtimes.llamacpp.model import LlamaModel, load_writer  # noqa: E402
from runtimes.messages import LoadSpec  # noqa: E402

PROMPT, STEPS, CHUNK = 300, 24, 128
FloatRow = NDArray[np.float32]


class Crowd:
    """Other sequences of an executor, which step when asked."""

    def __init__(self, executor: Executor, tokens: list[int], size: int, seed: int) -> None:
        self._x, self._tokens, self._random = executor, tokens, random.Random(seed)
        self._length = {executor.open(): 0 for _ in range(size)}

    def rows(self, most: int) -> list[Row]:
        chosen = [h for h, n in self._length.items() if self._random.random() < 0.5 and n < 400]
        widths = [self._random.randint(1, most) for _ in chosen]
        made = [
            Row(h, self._tokens[:width], self._length[h], False)
            for h, width in zip(chosen, widths, strict=True)
        ]
        for row in made:
            self._length[row.handle] += len(row.tokens)
        return made

    def step(self) -> None:
        if rows := self.rows(20):
            self._x.step(rows, lambda _: None)


def run(model: LlamaModel, tokens: list[int], seed: int | None, *, quiet: bool) -> FloatRow:
    """The logits after the prompt and after each of the forced tokens that follow. Without a `seed`
    nothing else runs."""
    executor = model.quiet() if quiet else model.executor
    assert executor is not None
    crowd = Crowd(model.executor, tokens, 6, seed) if seed is not None else None
    rows: list[FloatRow] = []

    def keep(logits: Logits) -> None:
        rows.append(logits.row(0).copy())

    mine, done = executor.open(), 0
    while done < PROMPT + STEPS:
        width = min(CHUNK, PROMPT - done) if done < PROMPT else 1
        if crowd:
            crowd.step()
        beside = crowd.rows(1) if crowd and not quiet else []
        executor.step([Row(mine, tokens[done : done + width], done, True), *beside], keep)
        done += width
    return np.array(rows[-STEPS - 1 :])


def main() -> None:
    path = Path(sys.argv[1])
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    for quiet in (False, True):
        results: list[FloatRow] = []
        for seed in (None, 1, 2):
            model = load_writer(LoadSpec("", path, 1024, 8192, 8, 2, quiet=1), lambda _: None)
            tokens = list(model.encode(text, True, False))[: PROMPT + STEPS]
            results.append(run(model, tokens, seed, quiet=quiet))
            model.release()
        worst = max(float(np.abs(result - results[0]).max()) for result in results[1:])
        name = "quiet " if quiet else "shared"
        print(f"{path.name} {name}: largest logit difference {worst:.4f}")


if __name__ == "__main__":
    main()
