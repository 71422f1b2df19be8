"""A permutation of [0, count) that is computed, not stored: O(1) memory, O(1) per element."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from infeed_server.order.mixing import Words, combine, mix

Positions = npt.NDArray[np.int64]

ROUNDS = 8
"""Even, so that halves of unequal width end where they began. Four rounds already make a
pseudo-random permutation of strong round functions (Luby and Rackoff); small domains, where a
half is two or three bits wide, want more."""


class Permutation:
    """The permutation of [0, count) that `key` (any integers) selects.

    A Feistel network over the next power of two; a value that falls outside of the range is
    sent through again until it falls inside, which takes less than two rounds on average.
    """

    def __init__(self, count: int, *key: int) -> None:
        if count < 1:
            raise ValueError(f"a permutation of {count} elements")
        self.count = count
        self._high, self._low = bit_widths(count)
        self._keys = [combine(*key, number) for number in range(ROUNDS)]

    def forward(self, values: npt.ArrayLike) -> Positions:
        """Where the values go; each must lie in [0, count)."""
        return self._walk(values, self._encrypt)

    def inverse(self, values: npt.ArrayLike) -> Positions:
        """Where the values came from: `inverse(forward(x)) == x`."""
        return self._walk(values, self._decrypt)

    def _walk(self, values: npt.ArrayLike, step: Callable[[Words], Words]) -> Positions:
        out = step(np.atleast_1d(np.asarray(values)).astype(np.uint64))
        outside = np.flatnonzero(out >= self.count)
        while outside.size:
            out[outside] = step(out[outside])
            outside = outside[out[outside] >= self.count]
        return out.astype(np.int64)

    def _encrypt(self, values: Words) -> Words:
        high, low = self._high, self._low
        left: Words = values >> np.uint64(low)
        right: Words = values & _mask(low)
        for key in self._keys:
            left, right = right, left ^ (mix(right ^ key) & _mask(high))
            high, low = low, high
        result: Words = (left << np.uint64(low)) | right
        return result

    def _decrypt(self, values: Words) -> Words:
        high, low = self._high, self._low
        left: Words = values >> np.uint64(low)
        right: Words = values & _mask(low)
        for key in reversed(self._keys):
            high, low = low, high
            left, right = right ^ (mix(left ^ key) & _mask(high)), left
        result: Words = (left << np.uint64(low)) | right
        return result


def bit_widths(count: int) -> tuple[int, int]:
    """Bits of the left and the right half of the numbers in [0, count)."""
    bits = max(2, (count - 1).bit_length())
    return bits - bits // 2, bits // 2


@lru_cache(maxsize=1024)
def permutation(count: int, *key: int) -> Permutation:
    """`Permutation`, its round keys kept: batches ask for the same few epochs and windows."""
    return Permutation(count, *key)


def _mask(bits: int) -> np.uint64:
    mask: np.uint64 = np.uint64((1 << bits) - 1)
    return mask
