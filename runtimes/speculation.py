"""Which running answers get drafts in a step: guessed tokens, verified beside the next one."""

from collections.abc import Sequence
from dataclasses import replace

from runtimes.base import Caps, Cut
from runtimes.draft_model import DraftModel, ModelDrafter
from runtimes.drafting import Drafting, Planned, best_draft
from runtimes.jobs import Job, JobState
from runtimes.lookup import PromptLookup
from runtimes.scheduler import Work
from runtimes.verify_cost import VerifyCost


class Speculation:
    """Guesses from a request's own text, and from a draft model where there is one, as long as
    they pay by the measured cost of a step.

    Only where a wrong guess can be taken back from memory, and only in steps that read no prompt,
    whose cost says nothing of a draft's."""

    def __init__(self, caps: Caps, model: DraftModel | None, *, wanted: bool) -> None:
        self._caps, self._model = caps, model
        # a wrong guess is taken back, which only a plain cache allows
        self._possible = wanted and caps.cut is Cut.ANY and caps.forks
        self._cost = VerifyCost()

    def observe(self, works: Sequence[Work], seconds: float) -> None:
        """A step of so many rows took so long."""
        if all(work.job.state is JobState.DECODE for work in works):
            self._cost.observe(sum(work.count + len(work.draft) for work in works), seconds)

    def extend(self, works: tuple[Work, ...], free_cells: int) -> tuple[Work, ...]:
        """The same step with drafts where they pay."""
        alone = all(w.count == 1 and w.job.state is JobState.DECODE for w in works)
        if not self._possible or not alone:
            return works
        if self._model is not None:
            self._model.keep({work.job.id for work in works})
        planned = Planned(len(works), float(len(works)))
        out: list[Work] = []
        for work in works:
            room = min(
                work.job.max_tokens - work.job.generated - 1,
                min(self._caps.max_rows, self._caps.max_outputs) - planned.rows,
                free_cells - planned.rows,
            )
            draft = best_draft(self._of(work.job), work.job.known, planned, self._cost, room)
            planned = Planned(
                planned.rows + len(draft.tokens),
                planned.tokens + draft.expected,
                planned.seconds + draft.seconds,
            )
            out.append(replace(work, draft=draft.tokens))
        return tuple(out)

    def came(self, job: Job, tokens: Sequence[int]) -> None:
        """These tokens were added to an answer."""
        for drafting in job.draftings:
            drafting.came(tokens)

    def _of(self, job: Job) -> tuple[Drafting, ...]:
        if not job.draftings:
            job.draftings = (Drafting(PromptLookup()),)
            if self._model is not None:
                job.draftings += (Drafting(ModelDrafter(self._model, job.id)),)
        return job.draftings
