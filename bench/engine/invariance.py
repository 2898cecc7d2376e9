"""How much a sequence's logits change with its company, its place in the cache and its chunk
widths.

    python bench/engine/invariance.py MODEL.gguf

Prints the largest logit difference, over 24 decode steps after a 300-token prompt, between a run in
an empty cache and runs beside other sequences. `alone` is what the engine does for requests whose
text must repeat: forwards of their own, chunks under 64 rows, lone tokens padded to two.
"""

import random
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runtimes.base import Logits, Row  # noqa: E402
from runtimes.llamacpp.executor import LlamaExecutor, load  # noqa: E402
from runtimes.messages import LoadSpec  # noqa: E402

PROMPT, STEPS, CHUNK = 300, 24, 48
FloatRow = NDArray[np.float32]


def run(model: Path, tokens: list[int], *, alone: bool, crowd: random.Random | None) -> FloatRow:
    """The logits after the prompt and after each of the forced tokens that follow."""
    spec = LoadSpec("", model, 1024, 8192, 16, 2)
    executor = load(spec, lambda _: None)
    others = [executor.open() for _ in range(6)] if crowd else []
    lengths = dict.fromkeys(others, 0)
    rows: list[FloatRow] = []

    def company(most: int) -> list[Row]:
        assert crowd is not None
        chosen = [h for h in others if crowd.random() < 0.5 and lengths[h] < 400]
        made = [Row(h, tokens[: crowd.randint(1, most)], lengths[h], False) for h in chosen]
        for row in made:
            lengths[row.handle] += len(row.tokens)
        return made

    def keep(logits: Logits) -> None:
        rows.append(logits.row(0).copy())

    mine, done = executor.open(), 0
    while done < PROMPT + STEPS:
        width = min(CHUNK, PROMPT - done) if done < PROMPT else 1
        row = Row(mine, tokens[done : done + width], done, True)
        if crowd and (before := company(20)):
            executor.step(before, lambda _: None)
        executor.step([row, *(company(1) if crowd and not alone else [])], keep, alone=alone)
        done += width
    executor.release()
    return np.array(rows[-STEPS - 1 :])


def main() -> None:
    model = Path(sys.argv[1])
    probe: LlamaExecutor = load(LoadSpec("", model, 512, 512, 1, 2), lambda _: None)
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    tokens = list(probe.encode(text, True, False))[: PROMPT + STEPS]
    probe.release()
    for alone in (False, True):
        base = run(model, tokens, alone=alone, crowd=None)
        worst = [
            float(np.abs(run(model, tokens, alone=alone, crowd=random.Random(seed)) - base).max())
            for seed in range(3)
        ]
        name = "alone " if alone else "shared"
        print(f"{model.name} {name}: largest logit difference {max(worst):.4f}")


if __name__ == "__main__":
    main()
