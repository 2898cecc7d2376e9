"""A radix tree over token ids that knows which sequences hold which prefix.

Every open sequence stands at one place of the tree; the tokens from the root to there are what its
KV memory holds. A node exists exactly as long as some sequence stands at it or below it, so where
forks share memory `size` is the number of cells in use. The tree holds no tensors and calls
nothing.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Handle = int

_EMPTY: Tokens = np.empty(0, np.int32)


def common_prefix(a: Tokens, b: Tokens) -> int:
    """How many leading tokens `a` and `b` share."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


class Node:
    """An edge of tokens and what stands at its end."""

    __slots__ = ("children", "handles", "mark", "parent", "tokens")

    def __init__(self, tokens: Tokens, parent: "Node | None") -> None:
        self.tokens = tokens
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.handles: set[Handle] = set()
        self.mark: object | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """The first `length` tokens asked for are held by the sequence `handle`."""

    length: int
    handle: Handle | None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Tokens [start, end) that a sequence computed although `owner` held them already."""

    start: int
    end: int
    owner: Handle


class RadixTree:
    """See the module. `max_marks` bounds the objects kept at the ends of prefixes."""

    def __init__(self, max_marks: int = 32) -> None:
        self.root = Node(_EMPTY, None)
        self.size = 0
        self._at: dict[Handle, Node] = {}
        self._length: dict[Handle, int] = {}
        self._marks: OrderedDict[int, Node] = OrderedDict()
        self._max_marks = max_marks

    # ------------------------------------------------------------------ questions

    def __contains__(self, handle: Handle) -> bool:
        return handle in self._at

    def length(self, handle: Handle) -> int:
        """How many tokens the sequence holds."""
        return self._length[handle]

    def tokens(self, handle: Handle) -> Tokens:
        """The tokens the sequence holds."""
        parts: list[Tokens] = []
        node: Node | None = self._at[handle]
        while node is not None:
            parts.append(node.tokens)
            node = node.parent
        return np.concatenate(parts[::-1])

    def match(self, tokens: Tokens) -> Match:
        """The longest prefix of `tokens` held by any sequence."""
        node, depth = self._descend(tokens)
        return Match(depth, self._any_below(node) if depth else None)

    def ends_on(self, tokens: Tokens) -> list[Match]:
        """The sequences whose tokens are, whole, a prefix of `tokens`; deepest first. For memory
        that cannot be cut these are the only ones that can be continued."""
        node, _ = self._descend(tokens)
        found: list[Match] = []
        while node.parent is not None:
            start = self._depth_of(node)
            if common_prefix(node.tokens, tokens[start:]) == len(node.tokens):
                found += [Match(start + len(node.tokens), h) for h in sorted(node.handles)]
            node = node.parent
        return found

    def private(self, handle: Handle) -> int:
        """How many tokens only this sequence holds: what closing it would free."""
        node = self._at[handle]
        freed, below = 0, None
        while node.parent is not None:
            others = node.handles - {handle}
            if others or any(child is not below for child in node.children.values()):
                break
            freed, below, node = freed + len(node.tokens), node, node.parent
        return freed

    def marked(self, tokens: Tokens) -> object | None:
        """What was kept at exactly the end of `tokens`."""
        node, depth = self._descend(tokens)
        if depth != len(tokens) or node.mark is None:
            return None
        if self._depth_of(node) + len(node.tokens) != depth:
            return None
        self._marks.move_to_end(id(node))
        return node.mark

    # ------------------------------------------------------------------ changes

    def open(self, handle: Handle) -> None:
        """A new sequence, holding nothing."""
        self._place(handle, self.root, 0)

    def fork(self, source: Handle, handle: Handle, length: int) -> None:
        """A new sequence holding the first `length` tokens of `source`."""
        self._place(handle, self._node_at(source, length), length)

    def extend(self, handle: Handle, tokens: Tokens) -> list[Overlap]:
        """The sequence now holds `tokens` more. Returns which of them others held already."""
        overlaps: list[Overlap] = []
        while len(tokens):
            node = self._at[handle]
            child = node.children.get(int(tokens[0]))
            if child is None:
                self._grow(handle, node, tokens)
                break
            shared = common_prefix(child.tokens, tokens)
            start = self._length[handle]
            owner = self._any_below(child)
            overlaps.append(Overlap(start, start + shared, owner))
            if shared < len(child.tokens):
                child = self._split(child, shared)
            self._move(handle, child, start + shared)
            tokens = tokens[shared:]
        return overlaps

    def cut(self, handle: Handle, length: int) -> None:
        """The sequence holds only its first `length` tokens any more."""
        if length != self._length[handle]:
            self._move(handle, self._node_at(handle, length), length)

    def remove(self, handle: Handle) -> None:
        """The sequence is gone, with every token no other sequence holds."""
        node = self._at.pop(handle)
        del self._length[handle]
        node.handles.discard(handle)
        self._tidy(node)

    def mark(self, handle: Handle, mark: object) -> None:
        """Keep `mark` at the end of what the sequence holds, as long as that place exists."""
        node = self._at[handle]
        if node is self.root:
            return
        node.mark = mark
        self._marks[id(node)] = node
        self._marks.move_to_end(id(node))
        if len(self._marks) > self._max_marks:
            _, oldest = self._marks.popitem(last=False)
            oldest.mark = None

    # ------------------------------------------------------------------ inside

    def _descend(self, tokens: Tokens) -> tuple[Node, int]:
        """The deepest node entered, and how many tokens of the path were matched."""
        node, depth = self.root, 0
        while depth < len(tokens):
            child = node.children.get(int(tokens[depth]))
            if child is None:
                break
            shared = common_prefix(child.tokens, tokens[depth:])
            depth += shared
            node = child
            if shared < len(child.tokens):
                break
        return node, depth

    def _any_below(self, node: Node) -> Handle:
        """A sequence at or below `node`. One always exists (see the module's invariant)."""
        while not node.handles:
            node = next(iter(node.children.values()))
        return next(iter(node.handles))

    def _depth_of(self, node: Node) -> int:
        """How many tokens lie before the node's own edge."""
        depth, above = 0, node.parent
        while above is not None:
            depth += len(above.tokens)
            above = above.parent
        return depth

    def _node_at(self, handle: Handle, length: int) -> Node:
        """The node on the sequence's path that ends at `length`; splits an edge for it if
        needed."""
        node, end = self._at[handle], self._length[handle]
        while node.parent is not None and end - len(node.tokens) >= length:
            end -= len(node.tokens)
            node = node.parent
        return self._split(node, len(node.tokens) - (end - length)) if end > length else node

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node's edge after `at` tokens; returns the new upper node."""
        assert node.parent is not None
        upper = Node(node.tokens[:at].copy(), node.parent)
        node.parent.children[int(node.tokens[0])] = upper
        node.tokens = node.tokens[at:].copy()
        node.parent = upper
        upper.children[int(node.tokens[0])] = node
        return upper

    def _grow(self, handle: Handle, node: Node, tokens: Tokens) -> None:
        """Append new tokens: on the edge itself where nobody else would notice, else below it."""
        alone = node.handles == {handle} and not node.children
        if alone and node is not self.root and node.mark is None:
            node.tokens = np.concatenate([node.tokens, tokens])
            self._length[handle] += len(tokens)
        else:
            child = Node(tokens.copy(), node)
            node.children[int(tokens[0])] = child
            self._move(handle, child, self._length[handle] + len(tokens))
        self.size += len(tokens)

    def _place(self, handle: Handle, node: Node, length: int) -> None:
        assert handle not in self._at, "the sequence is in the tree already"
        self._at[handle], self._length[handle] = node, length
        node.handles.add(handle)

    def _move(self, handle: Handle, node: Node, length: int) -> None:
        old = self._at[handle]
        if old is node:
            self._length[handle] = length
            return
        old.handles.discard(handle)
        node.handles.add(handle)
        self._at[handle], self._length[handle] = node, length
        self._tidy(old)

    def _tidy(self, node: Node) -> None:
        """Remove nodes nobody holds, and join a node with its only child where nothing stands."""
        while node.parent is not None and not node.handles and not node.children:
            del node.parent.children[int(node.tokens[0])]
            self._unmark(node)
            self.size -= len(node.tokens)
            node = node.parent
        if node.parent is None or node.handles or node.mark is not None or len(node.children) != 1:
            return
        (child,) = node.children.values()
        child.tokens = np.concatenate([node.tokens, child.tokens])
        child.parent = node.parent
        node.parent.children[int(node.tokens[0])] = child

    def _unmark(self, node: Node) -> None:
        if node.mark is not None:
            node.mark = None
            self._marks.pop(id(node), None)

    def check(self) -> None:
        """Assert the invariants; for tests and idle moments."""
        nodes = list(self._walk(self.root))
        assert self.size == sum(len(n.tokens) for n in nodes)
        for node in nodes[1:]:
            assert node.handles or node.children, "a node nobody holds"
            assert len(node.tokens), "an empty edge"
            assert node.parent is not None
            assert node.parent.children[int(node.tokens[0])] is node
        for handle, node in self._at.items():
            assert handle in node.handles
            assert self._depth_of(node) + len(node.tokens) == self._length[handle]
        assert len(self._marks) <= self._max_marks
        assert all(n.mark is not None for n in self._marks.values())

    def _walk(self, node: Node) -> Iterator[Node]:
        yield node
        for child in node.children.values():
            yield from self._walk(child)
