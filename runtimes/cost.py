"""How many prompt tokens a step may hold, from what steps have cost so far, and how much else may
go between steps."""

# A running stream waits this long at most for a chunk of somebody's prompt; a lone prompt is cut
# into chunks of the second length, which bounds how late a cancel is noticed. Seconds.
STALL_TARGET = 0.15
CANCEL_TARGET = 1.0
# Below this width the kernels waste their time on small matrices.
MIN_CHUNK = 64
# Weight of the newest measurement.
_NEWEST = 0.3


class StepCost:
    """A running estimate of the seconds a prompt token costs. It starts from `token_seconds`, which
    the load measured; without, with a cautious chunk."""

    def __init__(self, max_rows: int, token_seconds: float | None = None) -> None:
        self._max_rows = max_rows
        self._per_token = token_seconds

    def observe(self, prompt_rows: int, seconds: float) -> None:
        """A step with `prompt_rows` tokens of prompts took `seconds`."""
        if prompt_rows < MIN_CHUNK // 2:
            return  # mostly fixed cost, says little about a token's
        cost = seconds / prompt_rows
        old = self._per_token
        self._per_token = cost if old is None else old + _NEWEST * (cost - old)

    def budget(self, streams: int) -> int:
        """Prompt tokens for the next step, with `streams` answers being written beside it."""
        if self._per_token is None:
            return min(128, self._max_rows)
        target = STALL_TARGET if streams else CANCEL_TARGET
        return min(self._max_rows, max(MIN_CHUNK, int(target / self._per_token)))


class DutyCycle:
    """Lets something take at most `share` of the time."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Whether it may run now."""
        return now >= self._next

    def took(self, started: float, ended: float) -> None:
        """It has run."""
        self._next = ended + (ended - started) * (1 / self._share - 1)
