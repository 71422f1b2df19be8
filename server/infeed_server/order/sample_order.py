"""The sample order: the sample, epoch and key at each position of the sample stream.

Epoch e visits the samples in the permutation π(seed, e); the stream is all epochs end to end.
There is no state: position 10,000,000 costs as much as position 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from infeed_server.order.hashing import combine
from infeed_server.order.permutation import (
    Permutation,
    Positions,
    cached_permutation,
    cached_stable_permutation,
)
from infeed_server.order.removed import NOTHING, Filling, Removed

Mode = Literal["global", "window", "none", "stable"]

MAX_SEED = (1 << 63) - 1

BLOCK_DOMAIN, WINDOW_DOMAIN, KEY_DOMAIN, SUBSTITUTE_DOMAIN, STABLE_DOMAIN = range(5)
"""Hash domains: draws for one purpose never equal draws for another."""


@dataclass(frozen=True)
class Slots:
    """The samples in a batch's slots: int64[n] index and epoch, int64[n, 2] key. `visited` are the
    samples whose turn it is; `index` differs where it is a substitute."""

    index: Positions
    epoch: Positions
    key: npt.NDArray[np.int64]
    visited: Positions


@dataclass(frozen=True)
class SampleOrder:
    """The order of `count` samples under one seed. `global` permutes all samples of an epoch.
    `window` permutes blocks of `block` consecutive samples, then the samples within each window of
    `window` positions, so that reads stay nearly sequential. `none` keeps the source's order.
    `stable` permutes all samples, so that one more of them changes one position of an epoch."""

    count: int
    seed: int
    mode: Mode = "none"
    block: int = 1024
    window: int = 16384
    removed: Removed = NOTHING

    @property
    def length(self) -> int:
        """The positions of an epoch."""
        return self.count - (self.removed.ids.size if self.removed.shrinks else 0)

    def slots(self, start: int, count: int, visits: SampleOrder | None = None) -> Slots:
        """Returns the samples at positions [start, start + count) in the stream of `visits`, by
        default this one, with this order's keys and substitutes."""
        visits = visits or self
        positions = np.arange(start, start + count, dtype=np.int64)
        slots = self.with_substitutes(*visits.visited(positions))
        return replace(slots, epoch=positions // visits.length)

    def with_substitutes(self, index: Positions, turns: Positions) -> Slots:
        """Returns samples, or the substitutes of removed ones, with their keys."""
        slots = Slots(index.copy(), turns, self.keys(turns, index), index)
        return self._without_removed(slots)

    def visited(self, positions: Positions) -> tuple[Positions, Positions]:
        """Returns the samples at positions, and the number of each one's turn, from 0: the epoch,
        if each sample has one turn per epoch."""
        epochs, offsets = np.divmod(positions, self.length)
        return _by_epoch(self.samples, epochs, offsets), epochs

    def require(self, start: int, count: int) -> None:
        """Raises `InvalidRequestError` for positions that the definition does not allow."""

    def visits(self, epoch: int, index: Positions) -> tuple[Positions, Positions, Positions]:
        """Returns the offsets of samples in an epoch, and the sample and turn at each offset: the
        inverse of `visited`."""
        index = index[index < self.count]
        offsets = self.offsets(epoch, index)
        has_slot = offsets >= 0
        return offsets[has_slot], index[has_slot], np.full(int(has_slot.sum()), epoch)

    def without(self, bad: Positions) -> SampleOrder:
        """Returns the order that also substitutes samples that are bad under any key."""
        return replace(self, removed=replace(self.removed, bad=np.sort(bad)))

    def samples(self, epoch: int, offsets: Positions) -> Positions:
        """Returns the samples at these offsets of an epoch."""
        return self._index(epoch, self._filling(epoch).forward(offsets))

    def offsets(self, epoch: int, index: Positions) -> Positions:
        """Returns the offsets of samples in an epoch, the inverse of `samples`; -1 for a removed
        sample without a slot."""
        offsets = self._filling(epoch).inverse(self._offsets(epoch, index))
        offsets[self.removed.has_no_slot(index)] = -1
        return offsets

    def _filling(self, epoch: int) -> Filling:
        return _filling(self, epoch if self.removed.shrinks else -1)

    def keys(self, turns: Positions, index: Positions) -> npt.NDArray[np.int64]:
        """Computes the samples' keys, int64[n, 2], from (seed, turn, index) alone."""
        return to_key(combine(self.seed, KEY_DOMAIN, turns, index))

    @property
    def name(self) -> str:
        """The options, as a run's segment records them."""
        return f"window:{self.block}:{self.window}" if self.mode == "window" else self.mode

    def check_behind(self, last: SampleOrder, start: int) -> None:  # noqa: ARG002 - of mixtures
        """Raises `ValueError` if a run in the order `last` would lose or repeat samples by
        continuing in this one."""
        if self.count < last.count:
            raise ValueError(f"it has {self.count} samples, fewer than the {last.count} before")
        before, now = last.removed, self.removed
        if before is not now and not np.isin(before.ids, now.ids).all():
            raise ValueError("removed samples reappear")
        if type(self) is not type(last):
            raise ValueError("a mixture cannot continue an order without parts, or the reverse")

    def named(self, name: str) -> SampleOrder:
        """Returns the order whose options have this name. Raises `ValueError`."""
        kind, *numbers = name.split(":")
        sizes = [int(number) for number in numbers] or [SampleOrder.block, SampleOrder.window]
        is_valid = bool(numbers) == (kind == "window") and len(sizes) == 2
        if kind in get_args(Mode) and is_valid and 0 < min(sizes) <= max(sizes) <= MAX_SEED:
            block, window = sizes
            return SampleOrder(self.count, self.seed, cast("Mode", kind), block, window)
        raise ValueError(f"a segment has the order {name!r}, which is unknown")

    def substitute(self, index: int, key: npt.NDArray[np.int64]) -> Slots:
        """Returns the substitute for a bad or removed sample, drawn from its key. A bad substitute
        is replaced in the same way, from its own new key."""
        gone = np.array([index])
        bad = Slots(gone, np.array([-1]), np.asarray(key)[None], gone)
        return self._without_removed(self._draw(bad))

    def _without_removed(self, slots: Slots) -> Slots:
        """Puts substitutes into the slots of removed samples."""
        while (gone := np.flatnonzero(self.removed.contains(slots.index))).size:
            ids = slots.index[gone]
            drawn = self._draw(Slots(ids, slots.epoch[gone], slots.key[gone], ids))
            slots.index[gone], slots.key[gone] = drawn.index, drawn.key
        return slots

    def _draw(self, slots: Slots) -> Slots:
        drawn = combine(slots.key[:, 0], slots.key[:, 1], SUBSTITUTE_DOMAIN)
        begin, count = self._peers(slots.index)
        others = np.maximum(np.asarray(count) - 1, 1).astype(np.uint64)
        other = begin + (drawn % others).astype(np.int64)
        # Skips the bad sample itself.
        other += (other >= slots.index) & (count > 1)
        return Slots(other, slots.epoch, to_key(drawn), slots.visited)

    def _peers(self, index: Positions) -> tuple[Any, Any]:  # noqa: ARG002 - others depend on it
        """Returns the first of each sample's possible substitutes, and their number."""
        return 0, self.count

    def _offsets(self, epoch: int, index: Positions) -> Positions:
        """Returns the offsets in an epoch of all samples: the inverse of `_index`."""
        if self.mode == "global":
            return cached_permutation(self.count, self.seed, epoch).inverse(index)
        if self.mode == "stable":
            return self._stable(epoch).inverse(index)
        if self.mode == "window":
            offsets = self._block(epoch, index)
            return self._within_window(epoch, offsets, inverse=True)
        copied: Positions = index.copy()
        return copied

    def _index(self, epoch: int, offsets: Positions) -> Positions:
        if self.mode == "global":
            return cached_permutation(self.count, self.seed, epoch).forward(offsets)
        if self.mode == "stable":
            return self._stable(epoch).forward(offsets)
        if self.mode == "window":
            return self._unblock(epoch, self._within_window(epoch, offsets))
        return offsets

    def _stable(self, epoch: int) -> Permutation:
        return cached_stable_permutation(self.count, self.seed, epoch, STABLE_DOMAIN)

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
        may be `shortfall` samples shorter; everything after it in the permuted stream begins that
        much earlier."""
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
        """Returns the permutation of the blocks, the last block's shortfall in samples, and its
        place in the permuted stream."""
        block_count = -(-self.count // self.block)
        permutation = cached_permutation(block_count, self.seed, epoch, BLOCK_DOMAIN)
        shortfall = block_count * self.block - self.count
        return permutation, shortfall, int(permutation.inverse(block_count - 1)[0])


def _by_epoch(
    function: Callable[[int, Positions], Positions], epochs: Positions, values: Positions
) -> Positions:
    """Calls a function with each epoch's values; returns the results in the values' order."""
    result = np.empty_like(values)
    for epoch in np.unique(epochs).tolist():
        in_epoch = epochs == epoch
        result[in_epoch] = function(epoch, values[in_epoch])
    return result


@lru_cache(maxsize=64)
def _filling(order: SampleOrder, epoch: int) -> Filling:
    """Returns the filling of an epoch; -1: there are no holes."""
    none = NOTHING.ids
    return Filling(order.count, none if epoch < 0 else order._offsets(epoch, order.removed.ids))


def to_key(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    return np.stack([combine(state, 0), combine(state, 1)], axis=-1).view(np.int64)
