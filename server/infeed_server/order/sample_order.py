"""The sample order: the sample, epoch and key at each position of the sample stream.

Epoch e visits the samples in the permutation π(seed, e); the stream is all epochs end to end.
There is no state: position 10,000,000 costs as much as position 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from infeed_server.order.hashing import combine
from infeed_server.order.permutation import Permutation, Positions, cached_permutation

Mode = Literal["global", "window", "none"]

MAX_SEED = (1 << 63) - 1

BLOCK_DOMAIN, WINDOW_DOMAIN, KEY_DOMAIN, SUBSTITUTE_DOMAIN = range(4)
"""Hash domains: draws for one purpose never equal draws for another."""


@dataclass(frozen=True)
class Slots:
    """The samples in the slots of a batch: int64[n] index and epoch, int64[n, 2] key."""

    index: Positions
    epoch: Positions
    key: npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampleOrder:
    """The order of `count` samples under one seed. `global` permutes all samples of an epoch.
    `window` permutes blocks of `block` consecutive samples, then the samples within each window of
    `window` positions, so that reads stay nearly sequential. `none` keeps the source's order."""

    count: int
    seed: int
    mode: Mode = "none"
    block: int = 1024
    window: int = 16384

    def slots(self, start: int, count: int) -> Slots:
        """Returns the samples at the positions [start, start + count)."""
        positions = np.arange(start, start + count, dtype=np.int64)
        epochs, offsets = np.divmod(positions, self.count)
        index = np.empty_like(offsets)
        for epoch in np.unique(epochs).tolist():
            in_epoch = epochs == epoch
            index[in_epoch] = self._index(epoch, offsets[in_epoch])
        return Slots(index, epochs, self.keys(epochs, index))

    def keys(self, epoch: Positions, index: Positions) -> npt.NDArray[np.int64]:
        """Computes the samples' keys, int64[n, 2], from (seed, epoch, index) alone."""
        return _to_key(combine(self.seed, KEY_DOMAIN, epoch, index))

    def substitute(self, index: int, key: npt.NDArray[np.int64]) -> Slots:
        """Returns the substitute for a bad sample, drawn from the bad sample's key. A bad
        substitute is replaced in the same way, from its own new key."""
        drawn = combine(int(key[0]), int(key[1]), SUBSTITUTE_DOMAIN)
        other = int(drawn[0] % np.uint64(max(self.count - 1, 1)))
        # Skips the bad sample itself.
        other += int(other >= index and self.count > 1)
        return Slots(np.array([other]), np.array([-1]), _to_key(drawn))

    def next_positions(self, index: Positions, position: int) -> Positions:
        """Returns the first position of each sample from a position on, at most two epochs away."""
        epoch, offset = divmod(position, self.count)
        offsets = self._offsets(epoch, index)
        passed = offsets < offset
        offsets[passed] = self.count + self._offsets(epoch + 1, index[passed])
        positions: Positions = epoch * self.count + offsets
        return positions

    def _offsets(self, epoch: int, index: Positions) -> Positions:
        """Returns the offsets in an epoch: the inverse of `_index`."""
        if self.mode == "global":
            return cached_permutation(self.count, self.seed, epoch).inverse(index)
        if self.mode == "window":
            offsets = self._block(epoch, index)
            return self._within_window(epoch, offsets, inverse=True)
        copied: Positions = index.copy()
        return copied

    def _index(self, epoch: int, offsets: Positions) -> Positions:
        if self.mode == "global":
            return cached_permutation(self.count, self.seed, epoch).forward(offsets)
        if self.mode == "window":
            return self._unblock(epoch, self._within_window(epoch, offsets))
        return offsets

    def _within_window(self, epoch: int, offsets: Positions, *, inverse: bool = False) -> Positions:
        result = np.empty_like(offsets)
        windows = offsets // self.window
        for window in np.unique(windows).tolist():
            begin = window * self.window
            size = min(self.window, self.count - begin)
            in_window = windows == window
            permutation = cached_permutation(size, self.seed, epoch, WINDOW_DOMAIN, window)
            turn = permutation.inverse if inverse else permutation.forward
            result[in_window] = begin + turn(offsets[in_window] - begin)
        return result

    def _unblock(self, epoch: int, offsets: Positions) -> Positions:
        """Maps offsets in the stream of permuted blocks to sample indices. The source's last block
        can be shorter by `shortfall` samples. Everything behind it in the permuted stream begins
        that much earlier."""
        permutation, shortfall, short_block = self._blocks(epoch)
        behind = offsets >= (short_block + 1) * self.block - shortfall
        block, within = np.divmod(offsets + np.where(behind, shortfall, 0), self.block)
        return permutation.forward(block) * self.block + within

    def _block(self, epoch: int, index: Positions) -> Positions:
        """Maps sample indices to offsets in the stream of permuted blocks."""
        permutation, shortfall, short_block = self._blocks(epoch)
        block, within = np.divmod(index, self.block)
        place = permutation.inverse(block)
        return place * self.block + within - np.where(place > short_block, shortfall, 0)

    def _blocks(self, epoch: int) -> tuple[Permutation, int, int]:
        """Returns the permutation of the blocks, the samples that the last block is short of, and
        its place in the permuted stream."""
        block_count = -(-self.count // self.block)
        permutation = cached_permutation(block_count, self.seed, epoch, BLOCK_DOMAIN)
        shortfall = block_count * self.block - self.count
        return permutation, shortfall, int(permutation.inverse(block_count - 1)[0])


def _to_key(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return np.stack([combine(state, 0), combine(state, 1)], axis=-1).view(np.int64)
