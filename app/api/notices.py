"""Warnings that would come with every request of an agent, told once."""

import logging

logger = logging.getLogger("runner.http")

_MANY = 200


class Notices:
    """Remembers what was told."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def ignored(self, what: str, kind: object) -> None:
        """Say that a `what` of this kind is left out of the prompt."""
        named = ascii(str(kind)[:60])  # a client's own word, on its way into the log
        self.once(f"{what} of type {named} cannot be used here and are ignored (said once)")

    def once(self, text: str) -> None:
        """Say this, unless it was said before."""
        if text in self._told or len(self._told) >= _MANY:
            return
        self._told.add(text)
        logger.warning("%s", text)
