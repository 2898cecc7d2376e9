"""What a step's logits are turned into: the tokens drawn, what they say of the prompt, and what is
kept of prompts' ends."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtimes.base import Logits
from runtimes.choosing import Choose
from runtimes.jobs import Job
from runtimes.logprobs import log_softmax_top
from runtimes.messages import Scored
from runtimes.sampling import Drawn, Run, draw_runs
from runtimes.scheduler import Work


class Harvest:
    """The tokens drawn in one step by job, in order, what is said of prompts' tokens, the logits
    at prompts' ends. Called by the executor once the step is under way."""

    def __init__(self, works: Sequence[Work], choose: Choose) -> None:
        self._choose = choose
        self.drawn: dict[int, list[Drawn]] = {}
        self.kept: dict[int, NDArray[np.float32]] = {}
        self.scored: list[Scored] = []
        self._asking = [work for work in works if work.outputs]

    def pick(self, logits: Logits) -> None:
        """Draw for everyone at once."""
        if not self._asking:
            return
        rows, end = logits.rows(), 0
        drawing: list[int] = []
        for work in self._asking:
            start, end = end, end + work.outputs
            if work.job.scoring:
                self.scored.append(_score(work, rows[start:end]))
            first = end - work.drawing
            if work.drawing and not work.job.generated:
                self.kept[work.job.id] = rows[first].copy()  # drawing writes into the rows
            drawing += range(first, end)
        works = [work for work in self._asking if work.drawing]
        runs = [Run(work.job.sampler, work.draft) for work in works]
        asked = rows if len(drawing) == len(rows) else rows[drawing]
        drawn = draw_runs(runs, asked, self._choose)
        self.drawn = {w.job.id: d for w, d in zip(works, drawn, strict=True)}


def _score(work: Work, rows: NDArray[np.float32]) -> Scored:
    """What the rows behind a chunk of a prompt say of the tokens that follow there."""
    job, first = work.job, work.job.computed + 1
    tokens = job.prompt[first : first + work.count]
    told = (log_softmax_top(row, job.alternatives or 0) for row in rows)
    found = [
        (float(row[token]) - norm, top)
        for row, token, (norm, top) in zip(rows, tokens, told, strict=False)
    ]
    return Scored(job.id, first, tuple(found))


def until_the_end(job: Job, drawn: Sequence[Drawn], end_ids: frozenset[int]) -> list[Drawn]:
    """Of the tokens drawn, those up to the one that ends the answer."""
    for index, one in enumerate(drawn):
        full = job.generated + index + 1 >= job.max_tokens
        if full or one.complete or one.refused is not None or one.token in end_ids:
            return list(drawn[: index + 1])
    return list(drawn)
