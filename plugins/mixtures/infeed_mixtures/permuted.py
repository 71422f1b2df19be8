"""Images under many permutations at once, since a block of a mixture has few samples of each part
and NumPy takes as long for one as for a thousand."""

from __future__ import annotations

import numpy as np

from infeed_server.order.hashing import Words, combine, mix
from infeed_server.order.permutation import (
    ROUNDS,
    SORTED_COUNT,
    Positions,
)


def by_group(groups: Positions) -> Positions:
    """Returns places sorted by group, and within a group in their order; NumPy sorts small numbers
    by radix."""
    return np.argsort(groups.astype(np.min_scalar_type(groups.max(initial=0))), kind="stable")


def images(values: Positions, which: Positions, counts: Positions, keys: Positions) -> Positions:
    """Returns `permutation(counts[i], *keys[i]).forward(value)` for each value, with i from
    `which`."""
    result = np.empty_like(values)
    for is_sorted, make in ((True, _Sorted), (False, _Networks)):
        chosen = (counts <= SORTED_COUNT) == is_sorted
        here = chosen[which]
        place = np.cumsum(chosen) - 1
        made = make(counts[chosen], keys[chosen])
        result[here] = made.forward(values[here], place[which[here]])
    return result


class _Sorted:
    """A permutation like that of `sorted_permutation` for each count and key."""

    def __init__(self, counts: Positions, keys: Positions) -> None:
        elements, last = np.arange(counts.max(initial=0)), np.iinfo(np.uint64).max
        hashes = combine(*keys.T[..., np.newaxis], elements)
        hashes = np.where(elements < counts[:, np.newaxis], hashes, last)
        self._images = np.argsort(hashes, 1, kind="stable")

    def forward(self, values: Positions, which: Positions) -> Positions:
        images: Positions = self._images[which, values]
        return images


class _Networks:
    """A Feistel network like that of `FeistelPermutation` for each count and key."""

    def __init__(self, counts: Positions, keys: Positions) -> None:
        self._counts = counts.astype(np.uint64)
        bits = np.maximum(2, np.frexp(counts - 1)[1])
        self._widths = np.array([bits - bits // 2, bits // 2], np.uint64)
        self._keys = combine(*keys.T[..., np.newaxis], np.arange(ROUNDS)).T

    def forward(self, values: Positions, which: Positions) -> Positions:
        out = self._encrypt(values.astype(np.uint64), which)
        outside = np.flatnonzero(out >= self._counts[which])
        while outside.size:
            out[outside] = self._encrypt(out[outside], which[outside])
            outside = outside[out[outside] >= self._counts[which[outside]]]
        return out.astype(np.int64)

    def _encrypt(self, values: Words, which: Positions) -> Words:
        high, low = (widths[which] for widths in self._widths)
        one = np.uint64(1)
        masks, last = [(one << high) - one, (one << low) - one], low
        left: Words = values >> low
        right: Words = values & masks[1]
        for key in self._keys:
            left, right = right, left ^ (mix(right ^ key[which]) & masks[0])
            masks.reverse()
        result: Words = (left << last) | right
        return result
