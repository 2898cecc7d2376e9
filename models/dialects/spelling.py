"""How marks are spelled: those that are control tokens of a vocabulary are no text in it.

Where text and control tokens have to be told apart in bytes, a control token is written as the byte
0xff, which no UTF-8 text holds, and its id in square brackets (llguidance writes them so, too)."""

import re
from collections.abc import Iterator, Mapping

Special = Mapping[str, int]
"""The ids of the marks that are control tokens."""

_CONTROL = re.compile(rb"\xff\[(\d+)\]")


def split(text: str, special: Special) -> Iterator[str]:
    """The text in pieces, each a mark of `special` or a stretch without any."""
    marks = sorted(filter(None, special), key=len, reverse=True)
    if not marks:
        return filter(None, [text])
    return filter(None, re.split("(" + "|".join(map(re.escape, marks)) + ")", text))


def spelled(text: str, special: Special) -> bytes:
    """The text as bytes in which its control tokens stand out."""
    return b"".join(
        control(special[piece]) if piece in special else piece.encode()
        for piece in split(text, special)
    )


def control(token: int) -> bytes:
    """A control token as bytes."""
    return b"\xff[%d]" % token


def unspelled(data: bytes) -> Iterator[int | bytes]:
    """What `spelled` made, apart again: ids of control tokens, and the text between them."""
    for index, piece in enumerate(_CONTROL.split(data)):
        if index % 2:
            yield int(piece)
        elif piece:
            yield piece
