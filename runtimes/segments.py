"""Text is tokenized piece by piece, and pieces that were seen before are not tokenized again.

An agent sends its whole conversation with every turn, and tokenizing 15,000 tokens takes 100 ms.
Tokenizers cut a text at its control marks before anything else, so that what stands between two of
them has the same tokens wherever it is; a piece is a mark and what follows it.
"""

import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

Tokenize = Callable[[str, bool, bool], Sequence[int]]
"""Text to token ids: whether to add the token that begins every text, and whether marks in the text
become their tokens."""

# Shorter texts are not worth remembering.
_SHORTEST = 512
# Characters of all pieces together, which take about as many bytes twice over.
_BUDGET = 16_000_000


def cutting(marks: Sequence[str], specials: Sequence[str]) -> tuple[str, ...]:
    """Those of the `marks` at which a text can be cut. `specials` is everything that the tokenizer
    looks for first, the longest before the others: a mark that could lie within one of these, or
    begin within one, is not always a mark."""
    begins = {mark[:n] for mark in marks for n in range(1, len(mark) + 1)}
    known, wrong = set(marks), set[str]()
    hidden = set[str]()
    for special in specials:
        for start in range(len(special)):
            for end in range(start + 1, len(special) + 1):
                piece = special[start:end]
                if end == len(special) and start and piece in begins:
                    wrong.add(piece)
                elif piece in known and piece != special:
                    hidden.add(piece)
    return tuple(
        mark
        for mark in marks
        if mark not in hidden and not any(mark.startswith(piece) for piece in wrong)
    )


class SegmentedTokenizer:
    """Gives the same tokens as `tokenize`. Safe to call from any thread where that is."""

    def __init__(self, tokenize: Tokenize, marks: Sequence[str], begins: Sequence[int]) -> None:
        """`begins`: what `tokenize` adds to a text where it is told to, all of it in front."""
        longest_first = sorted(filter(None, marks), key=len, reverse=True)
        self._marks = re.compile("|".join(map(re.escape, longest_first))) if marks else None
        self._tokenize, self._begins = tokenize, tuple(begins)
        self._pieces: OrderedDict[str, array[int]] = OrderedDict()
        self._under_way: dict[str, Future[array[int]]] = {}
        self._size = 0
        self._lock = threading.Lock()

    def __call__(self, text: str, add_begin: bool, specials: bool) -> tuple[int, ...]:
        """See `Tokenize`."""
        if self._marks is None or not specials or len(text) < _SHORTEST:
            return tuple(self._tokenize(text, add_begin, specials))
        tokens = array("i", self._begins if add_begin else ())
        for piece in self._cut(text):
            tokens += self._tokens(piece)
        return tuple(tokens)

    def _cut(self, text: str) -> Iterator[str]:
        assert self._marks is not None
        at = 0
        for mark in self._marks.finditer(text):
            if mark.start() > at:
                yield text[at : mark.start()]
                at = mark.start()
        yield text[at:]

    def _tokens(self, piece: str) -> "array[int]":
        with self._lock:
            found = self._pieces.get(piece)
            if found is not None:
                self._pieces.move_to_end(piece)
                return found
            promise = self._under_way.get(piece)
            if first := promise is None:
                promise = self._under_way[piece] = Future["array[int]"]()
        # Agents that begin together share their longest piece: the first one's work is everyone's.
        return self._make(piece, promise) if first else promise.result()

    def _make(self, piece: str, promise: "Future[array[int]]") -> "array[int]":
        try:
            made = array("i", self._tokenize(piece, False, True))
        except BaseException as error:
            with self._lock:
                del self._under_way[piece]
            promise.set_exception(error)
            raise
        with self._lock:
            del self._under_way[piece]
            self._pieces[piece] = made
            self._size += len(piece)
            while self._size > _BUDGET and len(self._pieces) > 1:
                self._size -= len(self._pieces.popitem(last=False)[0])
        promise.set_result(made)
        return made
