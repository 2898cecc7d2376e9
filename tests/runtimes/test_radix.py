"""The radix tree against a plain dictionary of token lists."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtimes.radix import Overlap, RadixTree, common_prefix


def ids(*tokens: int) -> np.ndarray:
    return np.array(tokens, np.int32)


def test_common_prefix_counts_equal_leading_tokens() -> None:
    assert common_prefix(ids(1, 2, 3), ids(1, 2, 4)) == 2
    assert common_prefix(ids(1, 2), ids(1, 2, 4)) == 2
    assert common_prefix(ids(5), ids(1)) == 0
    assert common_prefix(ids(), ids(1)) == 0


def test_a_match_may_end_inside_an_edge() -> None:
    tree = RadixTree()
    tree.open(1)
    tree.extend(1, ids(1, 2, 3, 4))
    found = tree.match(ids(1, 2, 9))
    assert (found.length, found.handle) == (2, 1)


def test_nothing_in_common_matches_nothing() -> None:
    tree = RadixTree()
    tree.open(1)
    tree.extend(1, ids(1, 2))
    assert tree.match(ids(7)).handle is None


def test_forks_share_their_prefix_and_closing_one_frees_only_its_tail() -> None:
    tree = RadixTree()
    tree.open(1)
    tree.extend(1, ids(1, 2, 3, 4))
    tree.fork(1, 2, 3)
    tree.extend(2, ids(8, 9))
    assert tree.size == 6
    assert tree.private(2) == 2
    tree.remove(2)
    assert tree.size == 4
    tree.check()


def test_computing_what_another_holds_is_reported_as_an_overlap() -> None:
    tree = RadixTree()
    for handle in (1, 2):
        tree.open(handle)
    tree.extend(1, ids(1, 2, 3, 4))
    assert tree.extend(2, ids(1, 2, 7)) == [Overlap(0, 2, 1)]
    assert tree.size == 5


def test_a_mark_is_found_only_at_exactly_its_place() -> None:
    tree = RadixTree()
    tree.open(1)
    tree.extend(1, ids(1, 2, 3))
    tree.mark(1, "logits")
    tree.extend(1, ids(4, 5))
    assert tree.marked(ids(1, 2, 3)) == "logits"
    assert tree.marked(ids(1, 2)) is None
    assert tree.marked(ids(1, 2, 3, 4)) is None
    tree.remove(1)
    assert tree.marked(ids(1, 2, 3)) is None


def test_the_oldest_mark_makes_room() -> None:
    tree = RadixTree(max_marks=1)
    for handle, token in ((1, 10), (2, 20)):
        tree.open(handle)
        tree.extend(handle, ids(token))
        tree.mark(handle, token)
    assert tree.marked(ids(10)) is None
    assert tree.marked(ids(20)) == 20


def test_only_whole_sequences_can_be_continued_without_a_cut() -> None:
    tree = RadixTree()
    tree.open(1)
    tree.extend(1, ids(1, 2, 3, 4))
    tree.fork(1, 2, 2)
    tree.extend(2, ids(3, 9))
    tree.fork(1, 3, 2)
    found = tree.ends_on(ids(1, 2, 3, 4, 5))
    assert [(m.length, m.handle) for m in found] == [(4, 1), (2, 3)]


class TreeMachine(RuleBasedStateMachine):
    """Random opens, forks, extensions, cuts and removals, beside a model of plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree(max_marks=3)
        self.model: dict[int, list[int]] = {}
        self.marks: dict[tuple[int, ...], int] = {}
        self.next = 0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.model)))

    @rule()
    def open(self) -> None:
        self.tree.open(self.next)
        self.model[self.next] = []
        self.next += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        source = self.pick(data)
        length = data.draw(st.integers(0, len(self.model[source])))
        self.tree.fork(source, self.next, length)
        self.model[self.next] = self.model[source][:length]
        self.next += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 2), max_size=6))
    def extend(self, data: st.DataObject, tokens: list[int]) -> None:
        handle = self.pick(data)
        before = len(self.model[handle])
        whole = self.model[handle] + tokens
        for overlap in self.tree.extend(handle, np.array(tokens, np.int32)):
            assert before <= overlap.start < overlap.end <= len(whole)
            assert overlap.owner != handle
            assert self.model[overlap.owner][: overlap.end] == whole[: overlap.end]
        self.model[handle] = whole

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        handle = self.pick(data)
        length = data.draw(st.integers(0, len(self.model[handle])))
        self.tree.cut(handle, length)
        self.model[handle] = self.model[handle][:length]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        handle = self.pick(data)
        self.next += 1
        self.tree.mark(handle, self.next)
        self.marks[tuple(self.model[handle])] = self.next

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        handle = self.pick(data)
        self.tree.remove(handle)
        del self.model[handle]

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        self.tree.check()
        prefixes = {tuple(t[:i]) for t in self.model.values() for i in range(1, len(t) + 1)}
        assert self.tree.size == len(prefixes)
        for handle, tokens in self.model.items():
            assert self.tree.tokens(handle).tolist() == tokens
            others = {
                tuple(t[:i])
                for h, t in self.model.items()
                if h != handle
                for i in range(1, len(t) + 1)
            }
            mine = {tuple(tokens[:i]) for i in range(1, len(tokens) + 1)}
            assert self.tree.private(handle) == len(mine - others)
        for tokens, mark in self.marks.items():
            assert self.tree.marked(np.array(tokens, np.int32)) in (None, mark)

    @invariant()
    def matches_the_longest_prefix(self) -> None:
        for query in ([0, 1, 2, 0], [1, 1], [2, 0, 0, 1, 1]):
            best = max((lcp(query, t) for t in self.model.values()), default=0)
            found = self.tree.match(np.array(query, np.int32))
            assert found.length == best
            if best:
                assert found.handle is not None
                assert self.model[found.handle][:best] == query[:best]
            whole = sorted(
                ((len(t), h) for h, t in self.model.items() if t and query[: len(t)] == t),
                key=lambda pair: (-pair[0], pair[1]),
            )
            assert [
                (m.length, m.handle) for m in self.tree.ends_on(np.array(query, np.int32))
            ] == whole


def lcp(a: list[int], b: list[int]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), max_size=20))
def test_common_prefix_equals_the_plain_loop(a: list[int], b: list[int]) -> None:
    assert common_prefix(np.array(a, np.int32), np.array(b, np.int32)) == lcp(a, b)
