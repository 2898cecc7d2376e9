"""Shows text up to the next mark, as much of it at once as can be."""

from collections.abc import Callable

from models.dialects.reader import Marks, Reader, Waiting

# More white space than this before a mark is text: it cannot be held back for ever.
_MOST_SPACE = 64


def show_until(
    text: Reader, marks: Marks, show: Callable[[str], None]
) -> Waiting[tuple[str | None, str]]:
    """Show everything up to the first mark and step over that. Returns it, and the white space
    before it, which was not shown. At the text's end it returns None, and the white space there."""
    while True:
        found = marks.first(text.text, text.at)
        begun = len(text.text) if text.ended else marks.begun(text.text, text.at)
        if found is not None and found.start() < begun:
            space = _space_before(text, found.start())
            show(text.text[text.at : space])
            between = text.text[space : found.start()]
            text.at = found.end()
            text.forget()
            return found[0], between
        if text.ended:
            space = _space_before(text, len(text.text))
            show(text.text[text.at : space])
            rest, text.at = text.text[space:], len(text.text)
            return None, rest
        space = _space_before(text, begun)
        show(text.text[text.at : space])
        text.at = space
        text.forget()
        yield


def _space_before(text: Reader, end: int) -> int:
    """Where the white space before `end` begins, as far as it is held back."""
    lowest = max(text.at, end - _MOST_SPACE)
    return lowest + len(text.text[lowest:end].rstrip())
