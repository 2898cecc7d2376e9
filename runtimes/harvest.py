"""What a step's logits are turned into: the tokens drawn, and what is kept of prompts' ends."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtimes.base import Logits
from runtimes.choosing import Choose
from runtimes.jobs import Job
from runtimes.sampling import Drawn, Run, draw_runs
from runtimes.scheduler import Work


class Harvest:
    """The tokens drawn in one step by job, in order, and the logits at prompts' ends. Called by the
    executor once the step is under way."""

    def __init__(self, works: Sequence[Work], choose: Choose) -> None:
        self._choose = choose
        self.drawn: dict[int, list[Drawn]] = {}
        self.kept: dict[int, NDArray[np.float32]] = {}
        self._asking = [work for work in works if work.outputs]

    def pick(self, logits: Logits) -> None:
        """Draw for everyone at once."""
        if not self._asking:
            return
        rows, at = logits.rows(), 0
        for work in self._asking:
            if not work.job.generated:
                self.kept[work.job.id] = rows[at].copy()  # drawing writes into the rows
            at += work.outputs
        runs = [Run(work.job.sampler, work.draft) for work in self._asking]
        drawn = draw_runs(runs, rows, self._choose)
        self.drawn = {w.job.id: d for w, d in zip(self._asking, drawn, strict=True)}


def until_the_end(job: Job, drawn: Sequence[Drawn], end_ids: frozenset[int]) -> list[Drawn]:
    """Of the tokens drawn, those up to the one that ends the answer."""
    for index, one in enumerate(drawn):
        full = job.generated + index + 1 >= job.max_tokens
        if full or one.complete or one.refused is not None or one.token in end_ids:
            return list(drawn[: index + 1])
    return list(drawn)
