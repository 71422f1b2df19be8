"""Coverage of an audit: which positions were delivered, and which sample ids of an epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from infeed.audit.outcome import MAX_EXAMPLES, DuplicateSample, Interval, UnknownSample
from infeed.shared.spec import Array


class GrowingArray:
    """Numbers by index. Grows by doubling, so that growing is rare."""

    def __init__(self, size: int, fill: int, data_type: type[np.integer]) -> None:
        self._fill = fill
        self._all = np.full(size, fill, data_type)
        self.size = size
        """One more than the highest index in use."""

    @property
    def values(self) -> Array:
        """The numbers in use."""
        return self._all[: self.size]

    def grow(self, size: int) -> None:
        """Makes room for at least `size` numbers."""
        self.size = max(self.size, size)
        if size > len(self._all):
            added = np.full(2 * size - len(self._all), self._fill, self._all.dtype)
            self._all = np.concatenate([self._all, added])


class Positions:
    """The delivered positions. Takes a byte for each."""

    def __init__(self) -> None:
        self._is_delivered = GrowingArray(0, 0, np.uint8)
        self.redelivered = 0
        """Positions that were delivered again, counted each time."""
        self.again: list[Interval] = []
        """The first intervals of them."""

    @property
    def end(self) -> int:
        """One more than the largest delivered position."""
        return self._is_delivered.size

    def add(self, positions: Array) -> Array:
        """Adds positions, and returns those that are new, in ascending order."""
        positions, times = np.unique(positions, return_counts=True)
        self._is_delivered.grow(int(positions.max(initial=-1)) + 1)
        is_delivered = self._is_delivered.values
        is_old = is_delivered[positions] > 0
        repeats = positions[is_old | (times > 1)]
        self.redelivered += int((times - ~is_old).sum())
        self.again += list(intervals(repeats))[: MAX_EXAMPLES - len(self.again)]
        is_delivered[positions] = 1
        return positions[~is_old]

    def missing(self, end: int) -> Array:
        """Returns the positions below `end` that were not delivered."""
        missing = np.flatnonzero(self._is_delivered.values[:end] == 0)
        return np.concatenate([missing, np.arange(self.end, end)])

    def count_from(self, end: int) -> int:
        """Returns how many were delivered from `end` on."""
        return int(np.count_nonzero(self._is_delivered.values[end:]))


class SampleCounts:
    """Deliveries of each sample id in one epoch. Takes 8 bytes a sample."""

    def __init__(self, sample_count: int | None) -> None:
        """`sample_count` is None where it is unknown: then it is the highest id seen, plus 1."""
        self._sample_count = sample_count
        self._first = GrowingArray(sample_count or 0, -1, np.int64)
        """The position of each sample's first delivery; -1 without one."""
        self.repeated: set[int] = set()
        """The ids that were seen more than once."""
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
        return self._first.size

    def missing_ids(self) -> Array:
        """Returns the ids that were not seen, int64."""
        return np.flatnonzero(self._first.values < 0)

    def add(self, ids: Array, positions: Array) -> None:
        """Counts sample `ids[i]` at `positions[i]`."""
        if self._sample_count is not None and ids.max(initial=-1) >= self._sample_count:
            is_known = ids < self._sample_count
            self._add_unknown(ids[~is_known], positions[~is_known])
            ids, positions = ids[is_known], positions[is_known]
        self._first.grow(int(ids.max(initial=-1)) + 1)
        first = self._first.values
        is_first = np.zeros(len(ids), bool)
        is_first[np.unique(ids, return_index=True)[1]] = True
        is_first &= first[ids] < 0
        first[ids[is_first]] = positions[is_first]
        if not is_first.all():
            self._add_duplicates(ids[~is_first], positions[~is_first])

    def _add_unknown(self, ids: Array, positions: Array) -> None:
        self.unknown_count += len(ids)
        for item in _examples(ids, positions, MAX_EXAMPLES - len(self.unknown)):
            self.unknown.append(UnknownSample(*item))

    def _add_duplicates(self, ids: Array, positions: Array) -> None:
        self.repeated.update(ids.tolist())
        self.duplicate_count += len(ids)
        for sample, again in _examples(ids, positions, MAX_EXAMPLES - len(self.duplicates)):
            first = int(self._first.values[sample])
            self.duplicates.append(DuplicateSample(sample, first, again))


def _examples(ids: Array, positions: Array, most: int) -> Iterator[tuple[int, int]]:
    return zip(ids[:most].tolist(), positions[:most].tolist(), strict=True)


def intervals(positions: Array) -> Iterator[Interval]:
    """Yields the intervals that ascending positions form."""
    if not len(positions):
        return
    breaks = np.flatnonzero(np.diff(positions) > 1)
    begins = positions[np.concatenate([[0], breaks + 1])]
    ends = positions[np.concatenate([breaks, [len(positions) - 1]])] + 1
    yield from zip(begins.tolist(), ends.tolist(), strict=True)
