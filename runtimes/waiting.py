"""The queue: whoever has most in the cache first, but nobody for ever last."""

from collections.abc import Callable, Iterator

from models.chat import Priority
from runtimes.jobs import Job

# A request that has waited so many times as long as others do goes first.
PATIENCE = 3.0
# Nobody is impatient before that.
_LEAST_S = 0.1
# Weight of the newest wait in the mean.
_NEWEST = 0.1


class Queue:
    """Jobs that wait. Interactive before batch, then by how much of the prompt is cached; what has
    waited beyond patience comes before all, the longest first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: list[Job] = []
        self._mean_wait = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def add(self, job: Job) -> None:
        """A request has come."""
        job.submitted_at = self._clock()
        self._jobs.append(job)

    def put_back(self, job: Job) -> None:
        """A request's memory was taken: it is next."""
        self._jobs.insert(0, job)

    def remove(self, job: Job) -> None:
        self._jobs.remove(job)

    def admitted(self, job: Job) -> None:
        """A job leaves the queue to run."""
        self._jobs.remove(job)
        wait = self._clock() - job.submitted_at
        self._mean_wait += _NEWEST * (wait - self._mean_wait)

    def order(self, depth: Callable[[Job], int]) -> list[Job]:
        """Whose turn it is, `depth` being how many of a job's tokens are cached."""
        now = self._clock()
        patience = max(_LEAST_S, PATIENCE * self._usual_wait(now))

        def rank(job: Job) -> tuple[float, ...]:
            if job.generated or now - job.submitted_at > patience:
                return (0, job.submitted_at)  # preempted, or out of patience
            return (1, job.priority is Priority.BATCH, -depth(job), job.submitted_at)

        return sorted(self._jobs, key=rank)

    def _usual_wait(self, now: float) -> float:
        """How long others wait: those that were admitted lately, or half of those here. The former
        alone says nothing of a burst, nor of a stream that never waits and passes somebody."""
        waits = sorted(now - job.submitted_at for job in self._jobs)
        here = waits[(len(waits) - 1) // 2] if waits else 0.0
        return max(self._mean_wait, here)
