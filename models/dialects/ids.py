"""The ids of an answer's calls, by the family's rule."""

import re
import secrets
import string
from collections.abc import Callable

from models.dialects.base import Ids

_ALPHABET = string.ascii_letters + string.digits
_NUMBERED = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::(?P<number>\d+))?")


def random_id(rule: Ids) -> str:
    """A fresh id."""
    if rule is Ids.NINE:
        return "".join(secrets.choice(_ALPHABET) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"


class CallIds:
    """Gives each call of one answer an id of its own. `fresh` makes the random ones."""

    def __init__(self, rule: Ids, fresh: Callable[[Ids], str] = random_id) -> None:
        self._rule, self._fresh = rule, fresh
        self._used: set[str] = set()
        self._number = 0

    def take(self, name: str, written: str | None) -> str:
        """The next call's id; `written` is what the model itself wrote as one."""
        made = self._numbered(name, written) if self._rule is Ids.NUMBERED else self._own(written)
        while made in self._used:
            made = self._fresh(self._rule)
        self._used.add(made)
        return made

    def _own(self, written: str | None) -> str:
        nine = re.fullmatch(r"[A-Za-z0-9]{9}", written or "")
        return nine[0] if nine and self._rule is Ids.NINE else self._fresh(self._rule)

    def _numbered(self, name: str, written: str | None) -> str:
        found = _NUMBERED.fullmatch(written or "")
        number = int(found["number"][:9]) if found and found["number"] else self._number
        while f"functions.{name}:{number}" in self._used:
            number += 1
        self._number = number + 1
        return f"functions.{name}:{number}"


def name_in(written: str) -> str:
    """The tool's name in an id of the numbered rule."""
    found = _NUMBERED.fullmatch(written)
    return found["name"] if found else written
