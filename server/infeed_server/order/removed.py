"""Removed samples: substitutes fill their slots, or epochs become shorter."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from infeed_server.order.permutation import Positions


@dataclass(frozen=True, eq=False)
class Removed:
    """The samples that a definition removes: `ids`, sorted. With `shrinks`, epochs become shorter;
    those in `bad`, sorted, are substituted in any case."""

    ids: Positions = field(default_factory=lambda: np.empty(0, np.int64))
    shrinks: bool = False
    bad: Positions = field(default_factory=lambda: np.empty(0, np.int64))

    def contains(self, index: Positions) -> np.ndarray:
        """Returns whether each sample is removed or bad: bool[n]."""
        gone: np.ndarray = _contains(self.ids, index) | _contains(self.bad, index)
        return gone

    def has_no_slot(self, index: Positions) -> np.ndarray:
        """Returns whether an epoch has no slot for each sample: bool[n]."""
        return _contains(self.ids if self.shrinks else self.ids[:0], index)


def _contains(ids: Positions, index: Positions) -> np.ndarray:
    """Returns whether each sample is in `ids`, sorted."""
    places = np.minimum(np.searchsorted(ids, index), ids.size - 1)
    return ids[places] == index if ids.size else np.zeros(len(index), bool)


NOTHING = Removed()


class Filling:
    """A mapping from the offsets of a shorter epoch to those of the whole one: the last remaining
    offsets fill the holes, so that all others stay in place."""

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
        """Returns the offsets in the shorter epoch, for offsets that are not holes."""
        return _replace(offsets, self._tail, self._holes)


def _replace(values: Positions, old: Positions, new: Positions) -> Positions:
    """Returns the values, where each in `old`, sorted, becomes the one in `new` at its place."""
    if not old.size:
        return values
    places = np.minimum(np.searchsorted(old, values), old.size - 1)
    return np.where(old[places] == values, new[places], values)
