"""The free text of a custom tool's call, read out of its JSON arguments while these come."""

import json
import re
from typing import Any, cast

_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# Whole letters and escapes only; the first half of a surrogate pair waits for the second.
_WHOLE = re.compile(
    r"""(?: [^"\\]
          | \\[^u]
          | \\u[dD][89abAB][0-9a-fA-F]{2} \\u[dD][c-fC-F][0-9a-fA-F]{2}
          | \\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}
        )*""",
    re.VERBOSE,
)


class FreeText:
    """Takes arguments as `{"input": "..."}` in any pieces and gives the text inside. What all of it
    adds up to is `text`; arguments of any other shape are the text, as they are."""

    def __init__(self) -> None:
        self.text = ""
        self.arguments = ""
        self._read = -1
        """How far the string was read; below 0: it has not begun."""

    def push(self, arguments: str) -> str:
        """The text that has become certain."""
        self.arguments += arguments
        if self._read < 0:
            begun = _BEGIN.match(self.arguments)
            if begun is None:
                return ""
            self._read = begun.end()
        found = _WHOLE.match(self.arguments, self._read)
        assert found is not None  # it may be empty
        self._read = found.end()
        return self._shown(_unescaped(found[0]))

    def finish(self) -> str:
        """The rest, now that nothing follows."""
        whole = _input_of(self.arguments)
        if self._read < 0:
            return self._shown(self.arguments if whole is None else whole)
        if whole is None or not whole.startswith(self.text):
            return ""  # what broke off ends where it broke off
        return self._shown(whole[len(self.text) :])

    def _shown(self, text: str) -> str:
        self.text += text
        return text


def _unescaped(text: str) -> str:
    try:
        return cast(str, json.loads(f'"{text}"', strict=False))
    except ValueError:  # an escape that JSON does not have
        return text


def _input_of(arguments: str) -> str | None:
    try:
        value: Any = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return None
    text: Any = cast(dict[str, Any], value).get("input") if isinstance(value, dict) else None
    if not isinstance(text, str):
        return None
    # Half a surrogate pair cannot be sent.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
