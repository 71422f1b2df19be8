"""Which positions of a stream were met: spans of whole numbers that grow together."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Span = tuple[int, int]
"""[begin, end)."""


class Spans:
    """A set of whole numbers, kept as the spans that it consists of. Not thread-safe.

    Numbers that come almost in order, as the batches of several ranks do, take a few spans only.
    """

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    @property
    def frontier(self) -> int:
        """The first number, from 0, that is missing."""
        return self._ends[0] if self._begins and self._begins[0] == 0 else 0

    @property
    def end(self) -> int:
        """One more than the largest number; 0 of none."""
        return self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._begins)

    def __iter__(self) -> Iterator[Span]:
        return zip(self._begins, self._ends, strict=True)

    def add(self, begin: int, end: int) -> None:
        """Adds [begin, end); spans that touch become one."""
        if begin >= end:
            return
        first = bisect_left(self._ends, begin)
        behind = bisect_right(self._begins, end)
        if first < behind:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[behind - 1])
        self._begins[first:behind] = [begin]
        self._ends[first:behind] = [end]

    def within(self, begin: int, end: int) -> Iterator[Span]:
        """The parts of [begin, end) that are here."""
        if begin >= end:
            return
        for place in range(bisect_right(self._ends, begin), bisect_left(self._begins, end)):
            yield max(begin, self._begins[place]), min(end, self._ends[place])

    def gaps(self, begin: int, end: int) -> Iterator[Span]:
        """The parts of [begin, end) that are missing."""
        for here, there in self.within(begin, end):
            if begin < here:
                yield begin, here
            begin = there
        if begin < end:
            yield begin, end


__all__ = ["Span", "Spans"]
