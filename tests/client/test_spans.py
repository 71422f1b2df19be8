"""Spans against a set of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.spans import Spans

pairs = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))


@examples(300)
@given(st.lists(pairs, max_size=12), pairs)
def test_spans_are_a_set_of_numbers(added: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    spans, numbers = Spans(), set()
    for begin, end in added:
        spans.add(begin, end)
        numbers |= set(range(begin, end))
    assert numbers == {n for begin, end in spans for n in range(begin, end)}
    assert len(spans) == len(numbers)
    assert spans.end == max(numbers, default=-1) + 1
    assert spans.frontier == min(set(range(40)) - numbers)
    # As few as can be: none is empty, and none touches the next.
    edges = [edge for span in spans for edge in span]
    assert edges == sorted(set(edges))
    wanted = set(range(*asked))
    within, gaps = list(spans.within(*asked)), list(spans.gaps(*asked))
    assert {n for begin, end in within for n in range(begin, end)} == wanted & numbers
    assert {n for begin, end in gaps for n in range(begin, end)} == wanted - numbers
    assert all(begin < end for begin, end in within + gaps)


def test_ranks_that_take_turns_leave_one_span() -> None:
    spans = Spans()
    for step in range(50):
        for rank in (2, 0, 1):
            begin = 4 * (3 * step + rank)
            spans.add(begin, begin + 4)
    assert list(spans) == [(0, 600)]
