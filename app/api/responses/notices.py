"""Warnings that would come with every request of an agent, told once."""

import logging

logger = logging.getLogger("runner.http")

_MANY = 200


class Notices:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def ignored(self, what: str, kind: str) -> None:
        """Say that a `what` of this kind is left out of the prompt."""
        kind = ascii(kind[:60])  # a client's own word, on its way into the log
        if (what, kind) in self._told or len(self._told) >= _MANY:
            return
        self._told.add((what, kind))
        logger.warning("%s of type %s cannot be used here and are ignored (said once)", what, kind)
