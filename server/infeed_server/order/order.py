"""The sample stream: which sample, of which epoch, stands at a position, and with which key.

Epoch e visits the samples in the permutation π(seed, e); all epochs laid end to end form the
stream. Nothing here remembers anything: position 10,000,000 costs what position 0 costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from infeed_server.order.mixing import combine
from infeed_server.order.permutation import Positions, permutation

Mode = Literal["global", "window", "none"]

BLOCKS, WINDOW, KEY, SUBSTITUTE = range(4)
"""Purposes, so that draws for one never equal those for another."""


@dataclass(frozen=True)
class Slots:
    """What stands in the slots of a batch: int64 index and epoch each, int64[n, 2] key."""

    index: Positions
    epoch: Positions
    key: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """The order of `count` samples under one seed.

    `global` permutes all samples of an epoch. `window` permutes blocks of `block` consecutive
    samples, then the samples within each window of `window` positions, so that reads stay nearly
    sequential. `none` keeps the source's order.
    """

    count: int
    seed: int
    mode: Mode = "none"
    block: int = 1024
    window: int = 16384

    def slots(self, start: int, count: int) -> Slots:
        """What stands at the positions [start, start + count)."""
        positions = np.arange(start, start + count, dtype=np.int64)
        epoch, offset = np.divmod(positions, self.count)
        index = np.empty_like(offset)
        for number in np.unique(epoch).tolist():
            members = epoch == number
            index[members] = self._index(number, offset[members])
        return Slots(index, epoch, self.keys(epoch, index))

    def keys(self, epoch: Positions, index: Positions) -> npt.NDArray[np.int64]:
        """The keys of samples: int64[n, 2], from (seed, epoch, index) alone."""
        return _pair(combine(self.seed, KEY, epoch, index))

    def substitute(self, index: int, key: npt.NDArray[np.int64]) -> Slots:
        """The sample that stands in for a bad one, drawn from the bad one's key.

        A stand-in that is bad too is replaced in the same way, from its own (new) key.
        """
        drawn = combine(int(key[0]), int(key[1]), SUBSTITUTE)
        other = int(drawn[0] % np.uint64(max(self.count - 1, 1)))
        # One of the others: those from the bad sample on move up by one.
        other += int(other >= index and self.count > 1)
        return Slots(np.array([other]), np.array([-1]), _pair(drawn))

    def _index(self, epoch: int, offset: Positions) -> Positions:
        if self.mode == "global":
            return permutation(self.count, self.seed, epoch).forward(offset)
        if self.mode == "window":
            return self._unblock(epoch, self._within_window(epoch, offset))
        return offset

    def _within_window(self, epoch: int, offset: Positions) -> Positions:
        out = np.empty_like(offset)
        number = offset // self.window
        for window in np.unique(number).tolist():
            begin = window * self.window
            size = min(self.window, self.count - begin)
            members = number == window
            inside = permutation(size, self.seed, epoch, WINDOW, window)
            out[members] = begin + inside.forward(offset[members] - begin)
        return out

    def _unblock(self, epoch: int, offset: Positions) -> Positions:
        """From an offset in the stream of permuted blocks to the sample's index.

        The last block of the source can be shorter. Where it comes at place `cut` of the
        permuted blocks, everything behind it begins earlier by what it lacks.
        """
        blocks = -(-self.count // self.block)
        places = permutation(blocks, self.seed, epoch, BLOCKS)
        lack = blocks * self.block - self.count
        cut = int(places.inverse(blocks - 1)[0])
        behind = offset >= (cut + 1) * self.block - lack
        place, within = np.divmod(offset + np.where(behind, lack, 0), self.block)
        return places.forward(place) * self.block + within


def _pair(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return np.stack([combine(state, 0), combine(state, 1)], axis=-1).view(np.int64)
