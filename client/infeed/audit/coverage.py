"""Data structures of an audit: the set of delivered positions, and the counts of sample ids."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from infeed.shared.spec import Array

MAX_EXAMPLES = 10
"""Items of each kind of problem that are listed one by one; the rest are only counted."""

Interval = tuple[int, int]
"""[begin, end)."""


class IntervalSet:
    """A set of integers, stored as disjoint intervals. Not thread-safe.

    Integers that are added almost in order, as the positions of several ranks are, need few
    intervals.
    """

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []

    @property
    def first_missing(self) -> int:
        """The smallest integer, from 0 on, that is not in the set."""
        return self._ends[0] if self._begins and self._begins[0] == 0 else 0

    @property
    def end(self) -> int:
        """One more than the largest integer; 0 if the set is empty."""
        return self._ends[-1] if self._ends else 0

    def add(self, begin: int, end: int) -> None:
        """Adds [begin, end), and merges intervals that touch."""
        if begin >= end:
            return
        first = bisect_left(self._ends, begin)
        stop = bisect_right(self._begins, end)
        if first < stop:
            begin = min(begin, self._begins[first])
            end = max(end, self._ends[stop - 1])
        self._begins[first:stop] = [begin]
        self._ends[first:stop] = [end]

    def overlaps(self, begin: int, end: int) -> Iterator[Interval]:
        """Yields the parts of [begin, end) that are in the set."""
        if begin >= end:
            return
        for index in range(bisect_right(self._ends, begin), bisect_left(self._begins, end)):
            yield max(begin, self._begins[index]), min(end, self._ends[index])

    def gaps(self, begin: int, end: int) -> Iterator[Interval]:
        """Yields the parts of [begin, end) that are not in the set."""
        for overlap_begin, overlap_end in self.overlaps(begin, end):
            if begin < overlap_begin:
                yield begin, overlap_begin
            begin = overlap_end
        if begin < end:
            yield begin, end


@dataclass(frozen=True)
class DuplicateSample:
    """A repeated sample: the positions of its first delivery and of this one.

    `first` is None after `SampleCounts.compact`, which drops the positions.
    """

    sample_id: int
    first: int | None
    again: int


@dataclass(frozen=True)
class UnknownSample:
    """A sample id that the pipeline does not have, and its position."""

    sample_id: int
    position: int


class SampleCounts:
    """Counts of each sample id in one epoch: 0, 1, or more. Not thread-safe.

    Takes 9 bytes a sample, until `compact` is called.
    """

    def __init__(self, sample_count: int | None) -> None:
        """`sample_count` is None where it is unknown: then it is the highest id seen, plus 1."""
        self._sample_count = sample_count
        self._size = sample_count or 0
        self._compacted: tuple[Array, Array] | None = None
        """The missing and the duplicated ids, in place of the arrays below."""
        self._counts = np.zeros(self._size, np.uint8)
        """0, 1, or 2 for more. Has spare room at the end where the sample count is unknown."""
        self._first_positions = np.full(self._size, -1, np.int64)
        self.duplicate_count = 0
        """Slots with a sample that another slot of the epoch has too."""
        self.unknown_count = 0
        """Slots with an id that the pipeline does not have."""
        self.duplicates: list[DuplicateSample] = []
        """The first `MAX_EXAMPLES`."""
        self.unknown: list[UnknownSample] = []
        """The first `MAX_EXAMPLES`."""

    @property
    def samples(self) -> int:
        """The number of sample ids; where it is unknown, up to the highest id seen."""
        return self._size

    def missing_ids(self) -> Array:
        """Returns the ids that were not seen, int64."""
        if self._compacted:
            return self._compacted[0]
        return np.flatnonzero(self._counts[: self._size] == 0)

    def duplicated_ids(self) -> Array:
        """Returns the ids that were seen more than once, int64."""
        if self._compacted:
            return self._compacted[1]
        return np.flatnonzero(self._counts[: self._size] > 1)

    def add(self, ids: Array, positions: Array) -> None:
        """Counts sample `ids[i]` at `positions[i]`."""
        self._expand()
        known = ids >= 0 if self._sample_count is None else (ids >= 0) & (ids < self._sample_count)
        if not known.all():
            self._add_unknown(ids[~known], positions[~known])
            ids, positions = ids[known], positions[known]
        self._grow(int(ids.max(initial=-1)) + 1)
        is_first = np.zeros(len(ids), bool)
        is_first[np.unique(ids, return_index=True)[1]] = True
        is_first &= self._counts[ids] == 0
        self._counts[ids[is_first]] = 1
        self._first_positions[ids[is_first]] = positions[is_first]
        self._add_duplicates(ids[~is_first], positions[~is_first])

    def compact(self) -> None:
        """Frees the arrays of a complete epoch, and with them the positions of its samples."""
        self._compacted = (self.missing_ids(), self.duplicated_ids())
        self._counts = np.empty(0, np.uint8)
        self._first_positions = np.empty(0, np.int64)

    def _expand(self) -> None:
        """Undoes `compact`, except for the positions."""
        if self._compacted is None:
            return
        missing, duplicated = self._compacted
        self._compacted = None
        self._first_positions = np.full(self._size, -1, np.int64)
        self._counts = np.ones(self._size, np.uint8)
        self._counts[missing] = 0
        self._counts[duplicated] = 2

    def _grow(self, size: int) -> None:
        """Makes room for `size` samples; doubles the arrays, so that growing is rare."""
        self._size = max(self._size, size)
        if size > len(self._counts):
            added = 2 * size - len(self._counts)
            self._counts = np.concatenate([self._counts, np.zeros(added, np.uint8)])
            self._first_positions = np.concatenate(
                [self._first_positions, np.full(added, -1, np.int64)]
            )

    def _add_unknown(self, ids: Array, positions: Array) -> None:
        self.unknown_count += len(ids)
        room = MAX_EXAMPLES - len(self.unknown)
        pairs = zip(ids[:room].tolist(), positions[:room].tolist(), strict=True)
        self.unknown += [UnknownSample(*pair) for pair in pairs]

    def _add_duplicates(self, ids: Array, positions: Array) -> None:
        self._counts[ids] = 2
        self.duplicate_count += len(ids)
        room = MAX_EXAMPLES - len(self.duplicates)
        for sample, position in zip(ids[:room].tolist(), positions[:room].tolist(), strict=True):
            first = int(self._first_positions[sample])
            known_first = None if first < 0 else first
            self.duplicates.append(DuplicateSample(sample, known_first, position))
