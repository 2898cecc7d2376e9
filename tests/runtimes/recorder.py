"""An executor that remembers how each sequence came about, so that its logits can be computed again
in an own context, fed with the same splits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtimes.base import Caps, Executor, Handle, Logits, Pick, Row

FloatRow = NDArray[np.float32]


@dataclass(frozen=True)
class Fed:
    """Tokens were computed in one step."""

    tokens: tuple[int, ...]


@dataclass(frozen=True)
class CutTo:
    """The sequence was cut to this length."""

    length: int


@dataclass(frozen=True)
class Shared:
    """[start, end) was taken from another sequence, of this recipe."""

    source: "Recipe"
    start: int
    end: int


Recipe = tuple[Fed | CutTo | Shared, ...]
Check = Callable[[Recipe, FloatRow], None]


def tokens_of(recipe: Recipe) -> list[int]:
    """The tokens a sequence of this recipe holds."""
    tokens: list[int] = []
    for part in recipe:
        match part:
            case Fed(tokens=more):
                tokens += more
            case CutTo(length=length):
                del tokens[length:]
            case Shared():
                pass
    return tokens


class Recorder:
    """Passes everything on to an executor; `check` is called with each row of logits it gives,
    before anyone can write to it."""

    def __init__(self, inner: Executor, check: Check) -> None:
        self.inner = inner
        self.check = check
        self.recipes: dict[Handle, Recipe] = {}
        self.pieces: dict[bytes, tuple[int, ...]] = {}
        # A window may be the same after different beginnings.
        self.states: dict[bytes, set[tuple[int, ...]]] = {}

    @property
    def caps(self) -> Caps:
        return self.inner.caps

    def open(self) -> Handle:
        handle = self.inner.open()
        self.recipes[handle] = ()
        return handle

    def fork(self, source: Handle, length: int) -> Handle | None:
        handle = self.inner.fork(source, length)
        if handle is not None:
            self.recipes[handle] = (*self.recipes[source], CutTo(length))
        return handle

    def cut(self, handle: Handle, length: int) -> bool:
        done = self.inner.cut(handle, length)
        if done:
            self.recipes[handle] = (*self.recipes[handle], CutTo(length))
        return done

    def share(self, source: Handle, target: Handle, start: int, end: int) -> bool:
        done = self.inner.share(source, target, start, end)
        if done:
            self.recipes[target] += (Shared(self.recipes[source], start, end),)
        return done

    def borrow(self, source: Handle, length: int) -> Handle | None:
        handle = self.inner.borrow(source, length)
        if handle is not None:
            self.recipes[handle] = (*self.recipes[source], CutTo(length))
        return handle

    def save(self, handle: Handle, start: int, end: int) -> memoryview | None:
        piece = self.inner.save(handle, start, end)
        if piece is not None:
            tokens = tuple(tokens_of(self.recipes[handle])[start:end])
            assert self.pieces.setdefault(bytes(piece), tokens) == tokens
        return piece

    def load(self, handle: Handle, start: int, end: int, piece: memoryview) -> bool:
        done = self.inner.load(handle, start, end, piece)
        if done:
            self.recipes[handle] += (Fed(self.pieces[bytes(piece)]),)
        return done

    def checkpoint(self, handle: Handle) -> memoryview | None:
        state = self.inner.checkpoint(handle)
        if state is not None:
            self.states.setdefault(bytes(state), set()).add(tuple(tokens_of(self.recipes[handle])))
        return state

    def restore(self, handle: Handle, length: int, checkpoint: memoryview) -> bool:
        held = tuple(tokens_of(self.recipes[handle]))[:length]
        known = self.states[bytes(checkpoint)]
        tokens = held or next(iter(known))
        assert len(tokens) == length
        assert tokens in known, "a checkpoint of other tokens"
        done = self.inner.restore(handle, length, checkpoint)
        if done:
            self.recipes[handle] = (Fed(tokens),)
        return done

    def park(self, handle: Handle) -> bool:
        return self.inner.park(handle)

    def unpark(self, handle: Handle) -> bool:
        return self.inner.unpark(handle)

    def close(self, handle: Handle) -> None:
        self.inner.close(handle)
        del self.recipes[handle]

    def step(self, rows: Sequence[Row], pick: Pick) -> None:
        def checked(logits: Logits) -> None:
            index = 0
            for row in rows:
                tokens, before = tuple(int(t) for t in row.tokens), self.recipes[row.handle]
                for end in range(len(tokens) - row.outputs + 1, len(tokens) + 1):
                    self.check((*before, Fed(tokens[:end])), logits.row(index).copy())
                    index += 1
                self.recipes[row.handle] = (*before, Fed(tokens))
            pick(logits)

        self.inner.step(rows, checked)

    def release(self) -> None:
        self.inner.release()


def replay(executor: Executor, recipe: Recipe) -> FloatRow:
    """The logits at a recipe's end, computed in the (otherwise empty) context of `executor`."""
    kept: list[FloatRow] = []
    handle = _play(executor, recipe, kept)
    executor.close(handle)
    return kept[-1]


def _play(executor: Executor, recipe: Recipe, kept: list[FloatRow]) -> Handle:
    handle, length = executor.open(), 0
    for part in recipe:
        match part:
            case Fed(tokens=tokens):
                row = Row(handle, tokens, length, True)
                executor.step([row], lambda logits: kept.append(logits.row(0).copy()))
                length += len(tokens)
            case CutTo(length=cut):
                assert executor.cut(handle, cut)
                length = cut
            case Shared(source=source, start=start, end=end):
                other = _play(executor, source, [])
                assert executor.share(other, handle, start, end)
                executor.close(other)
    return handle


def scratch(executor: Executor, tokens: Sequence[int]) -> FloatRow:
    """The logits after `tokens`, computed from nothing in one go."""
    limit = executor.caps.max_rows
    pieces = [tuple(tokens[i : i + limit]) for i in range(0, len(tokens), limit)]
    return replay(executor, tuple(Fed(piece) for piece in pieces))
