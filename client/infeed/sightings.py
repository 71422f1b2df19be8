"""How often each sample of one epoch was seen, and where."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from infeed.spec import Array

EXAMPLES = 10
"""Of anything that is wrong, so many are named."""


@dataclass(frozen=True)
class Repeat:
    """A sample that was seen again.

    `first` is the position where it was seen before, None where that is not remembered any more.
    """

    sample_id: int
    first: int | None
    again: int


@dataclass(frozen=True)
class Stranger:
    """A sample id that the pipeline does not have, and the position where it was seen."""

    sample_id: int
    position: int


class Sightings:
    """The sample ids of one epoch: seen never, once, or more often. Not thread-safe.

    `samples` is how many there are; None where nobody knows, then ids up to the highest count.
    Takes 9 bytes a sample, until `rest` is called.
    """

    def __init__(self, samples: int | None) -> None:
        self._known = samples
        self._size = samples or 0
        self._resting: tuple[Array, Array] | None = None
        self._times = np.zeros(self._size, np.uint8)
        """0, 1, or 2 for more. Longer than the number of samples while that is not known."""
        self._first = np.full(self._size, -1, np.int64)
        self.surplus = 0
        """Sightings of samples that had been seen before."""
        self.strangers = 0
        """Sightings of ids that the pipeline does not have."""
        self.repeats: list[Repeat] = []
        """The first of them."""
        self.unknown: list[Stranger] = []
        """The first of them."""

    @property
    def samples(self) -> int:
        """The number of sample ids there are; where nobody knows, as far as they were seen."""
        return self._size

    def never(self) -> Array:
        """The ids that were not seen, int64."""
        return self._resting[0] if self._resting else np.flatnonzero(self._seen == 0)

    def more(self) -> Array:
        """The ids that were seen more than once, int64."""
        return self._resting[1] if self._resting else np.flatnonzero(self._seen > 1)

    def add(self, ids: Array, positions: Array) -> None:
        """Sees sample `ids[i]` at `positions[i]`."""
        self._wake()
        good = ids >= 0 if self._known is None else (ids >= 0) & (ids < self._known)
        if not good.all():
            self._meet_strangers(ids[~good], positions[~good])
            ids, positions = ids[good], positions[good]
        self._grow(int(ids.max(initial=-1)) + 1)
        different, where = np.unique(ids, return_index=True)
        if len(different) < len(ids) or self._times[different].any():
            self._count_slowly(ids, positions)
        else:
            self._times[different] = 1
            self._first[different] = positions[where]

    def rest(self) -> None:
        """Takes little memory from now on; repeats that still come forget where they were first."""
        self._resting = (self.never(), self.more())
        self._times = np.empty(0, np.uint8)
        self._first = np.empty(0, np.int64)

    @property
    def _seen(self) -> Array:
        return self._times[: self._size]

    def _wake(self) -> None:
        if self._resting is None:
            return
        never, more = self._resting
        self._resting = None
        self._first = np.full(self._size, -1, np.int64)
        self._times = np.ones(self._size, np.uint8)
        self._times[never] = 0
        self._times[more] = 2

    def _grow(self, size: int) -> None:
        """Makes room for that many samples, and for as many more, so that it is seldom needed."""
        self._size = max(self._size, size)
        if size > len(self._times):
            more = 2 * size - len(self._times)
            self._times = np.concatenate([self._times, np.zeros(more, np.uint8)])
            self._first = np.concatenate([self._first, np.full(more, -1, np.int64)])

    def _meet_strangers(self, ids: Array, positions: Array) -> None:
        self.strangers += len(ids)
        room = EXAMPLES - len(self.unknown)
        pairs = zip(ids[:room].tolist(), positions[:room].tolist(), strict=True)
        self.unknown += [Stranger(*pair) for pair in pairs]

    def _count_slowly(self, ids: Array, positions: Array) -> None:
        """One after the other, for some were seen before."""
        for sample, position in zip(ids.tolist(), positions.tolist(), strict=True):
            if not self._times[sample]:
                self._times[sample], self._first[sample] = 1, position
                continue
            self._times[sample] = 2
            self.surplus += 1
            if len(self.repeats) < EXAMPLES:
                first = int(self._first[sample])
                self.repeats.append(Repeat(sample, None if first < 0 else first, position))


__all__ = ["EXAMPLES", "Repeat", "Sightings", "Stranger"]
