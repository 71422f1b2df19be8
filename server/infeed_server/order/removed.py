"""Removed samples: their slots have substitutes, or the epochs are shorter."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from infeed_server.order.permutation import Positions


@dataclass(frozen=True, eq=False)
class Removed:
    """The samples that a definition removes: `ids`, sorted. `shrinks`: epochs are shorter."""

    ids: Positions = field(default_factory=lambda: np.empty(0, np.int64))
    shrinks: bool = False

    def __bool__(self) -> bool:
        return bool(self.ids.size)

    def contains(self, index: Positions) -> np.ndarray:
        """Returns whether each sample is removed: bool[n]."""
        places = np.minimum(np.searchsorted(self.ids, index), max(0, self.ids.size - 1))
        return self.ids[places] == index if self else np.zeros(len(index), bool)

    def same_order(self, other: Removed) -> bool:
        """Returns whether the samples have the same positions, whatever their substitutes are."""
        if self is other:
            return True
        mine, others = (one.ids if one.shrinks else one.ids[:0] for one in (self, other))
        return bool(np.array_equal(mine, others))


NOTHING = Removed()


class Filling:
    """A mapping from the offsets of a shorter epoch to the whole one's: the last offsets that are
    left fill the holes, so that all others stay as they are."""

    def __init__(self, count: int, holes: Positions) -> None:
        """`holes` are the offsets, of `count`, of the samples that are removed."""
        length = count - len(holes)
        tail = np.arange(length, count)
        self._holes = np.sort(holes[holes < length])
        self._tail = tail[~np.isin(tail, holes)]

    def forward(self, offsets: Positions) -> Positions:
        """Returns the offsets in the whole epoch."""
        return _replace(offsets, self._holes, self._tail)

    def inverse(self, offsets: Positions) -> Positions:
        """Returns the offsets in the shorter epoch, of offsets that are no holes."""
        return _replace(offsets, self._tail, self._holes)


def _replace(values: Positions, old: Positions, new: Positions) -> Positions:
    """Returns the values, of which each in `old`, sorted, is the one in `new` at its place."""
    if not old.size:
        return values
    places = np.minimum(np.searchsorted(old, values), old.size - 1)
    return np.where(old[places] == values, new[places], values)
