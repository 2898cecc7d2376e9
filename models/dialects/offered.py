"""The tools on offer, by the names that models give them."""

from collections.abc import Sequence

from models.chat import Tool
from models.dialects.base import Schema

_BEFORE = ("functions.", "default_api.", "tools.")
_AFTER = (".call",)


class Offered:
    """Knows which names are tools, and what parameters they have."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def __bool__(self) -> bool:
        return bool(self._tools)

    def name(self, written: str, *, known_only: bool) -> str | None:
        """The tool that is meant, whatever namespace stands around its name. One that is not on
        offer keeps its name, or is None where only those known count."""
        # Half a surrogate pair, which JSON's escapes can spell, is no character.
        written = written.strip().encode("utf-8", "replace").decode()
        forms = [written]
        forms += [written.removeprefix(before) for before in _BEFORE]
        forms += [form.removesuffix(after) for form in tuple(forms) for after in _AFTER]
        known = next((form for form in forms if form in self._tools), None)
        if known is not None or known_only:
            return known
        return written or None

    def parameters(self, name: str) -> Schema:
        """The schema of a tool's parameters; empty for one that is not on offer."""
        tool = self._tools.get(name)
        return tool.parameters if tool is not None else {}
