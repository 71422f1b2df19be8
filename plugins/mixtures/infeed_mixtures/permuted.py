"""Images under many permutations at once, since a block of a mixture has few samples of each part
and NumPy takes as long for one as for a thousand."""

from __future__ import annotations

import numpy as np

from infeed_server.order.hashing import Words, combine, mix
from infeed_server.order.permutation import (
    ROUNDS,
    SORTED_COUNT,
    Positions,
    half_widths,
)


def images(values: Positions, which: Positions, counts: list[int], keys: Positions) -> Positions:
    """Returns `permutation(counts[i], *keys[i]).forward(value)` for each value, with i from
    `which`."""
    result = np.empty_like(values)
    sizes = np.array(counts)
    large = sizes[which] > SORTED_COUNT
    small = np.where(sizes > SORTED_COUNT, 0, sizes)
    begins = (np.cumsum(small) - small)[which]
    result[~large] = _sorted_images(small, keys)[(begins + values)[~large]]
    result[large] = _Networks(counts, keys).forward(values[large], which[large])
    return result


def _sorted_images(sizes: Positions, keys: Positions) -> Positions:
    """Returns all images under permutations like `sorted_permutation`, concatenated."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    elements = np.arange(len(owners)) - (np.cumsum(sizes) - sizes)[owners]
    hashes = combine(*keys[owners].T, elements)
    return elements[np.lexsort((hashes, owners))]


class _Networks:
    """A Feistel network like that of `FeistelPermutation` for each count and key."""

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
