"""What a step brings, gathered until it is sent."""

from dataclasses import dataclass, field

from runtimes.base import EngineStats
from runtimes.messages import JobEnd, NewToken, PrefillProgress, Rejected, Scored, StepDone


@dataclass(slots=True)
class News:
    """What the step has brought so far."""

    tokens: list[NewToken] = field(default_factory=list[NewToken])
    prefill: list[PrefillProgress] = field(default_factory=list[PrefillProgress])
    scored: list[Scored] = field(default_factory=list[Scored])
    ended: list[JobEnd] = field(default_factory=list[JobEnd])
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    cancelled: bool = False

    @property
    def urgent(self) -> bool:
        """Whether it need not wait for the step."""
        return bool(self.prefill or self.rejected or self.cancelled)

    def report(self, stats: EngineStats) -> StepDone:
        """All of it as one message."""
        return StepDone(
            tuple(self.tokens),
            tuple(self.prefill),
            tuple(self.scored),
            tuple(self.ended),
            tuple(self.rejected),
            stats,
        )
