"""Images under many permutations at once: a block of a mixture has few samples of each part, and
NumPy takes as long for one as for a thousand."""

from __future__ import annotations

import numpy as np

from infeed_server.order.hashing import Words, combine, mix
from infeed_server.order.permutation import (
    ROUNDS,
    SORTED_COUNT,
    Positions,
    cached_permutation,
    half_widths,
)


def images(values: Positions, which: Positions, counts: list[int], keys: Positions) -> Positions:
    """Returns `permutation(counts[i], *keys[i]).forward(value)` of each value, whose i is in
    `which`."""
    result = np.empty_like(values)
    large = np.array(counts)[which] > SORTED_COUNT
    for number in np.unique(which[~large]).tolist():
        inside = which == number
        small = cached_permutation(counts[number], *keys[number].tolist())
        result[inside] = small.forward(values[inside])
    result[large] = _Networks(counts, keys).forward(values[large], which[large])
    return result


class _Networks:
    """Feistel networks as `FeistelPermutation` has one, for each count and key."""

    def __init__(self, counts: list[int], keys: Positions) -> None:
        self._counts = np.array(counts, np.uint64)
        self._widths = np.array([half_widths(count) for count in counts], np.uint64).T
        self._keys = [combine(*keys.T, number) for number in range(ROUNDS)]

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
