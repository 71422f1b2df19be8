"""Interval sets, compared with sets of integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

from infeed.audit.coverage import Interval, IntervalSet

intervals = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))


def integers(parts: list[Interval]) -> set[int]:
    return {number for begin, end in parts for number in range(begin, end)}


@examples(300)
@given(st.lists(intervals, max_size=12), intervals)
def test_an_interval_set_equals_a_set_of_integers(added: list[Interval], query: Interval) -> None:
    interval_set = IntervalSet()
    for begin, end in added:
        interval_set.add(begin, end)
    expected = integers(added)
    contained = list(interval_set.overlaps(0, 40))
    assert integers(contained) == expected
    assert interval_set.end == max(expected, default=-1) + 1
    assert interval_set.first_missing == min(set(range(40)) - expected)
    # The intervals are minimal: none is empty, and none touches the next.
    edges = [edge for interval in contained for edge in interval]
    assert edges == sorted(set(edges))
    overlaps, gaps = list(interval_set.overlaps(*query)), list(interval_set.gaps(*query))
    assert integers(overlaps) == set(range(*query)) & expected
    assert integers(gaps) == set(range(*query)) - expected
    assert all(begin < end for begin, end in overlaps + gaps)


def test_batches_of_interleaved_ranks_merge_into_one_interval() -> None:
    interval_set = IntervalSet()
    for step in range(50):
        for rank in (2, 0, 1):
            begin = 4 * (3 * step + rank)
            interval_set.add(begin, begin + 4)
    assert list(interval_set.overlaps(0, 1000)) == [(0, 600)]
