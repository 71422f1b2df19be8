"""Pseudo-random permutations of [0, count), computed in O(1) memory and O(1) time per element."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from infeed_server.order.hashing import Words, combine, mix

Positions = npt.NDArray[np.int64]

SORTED_COUNT = 64
"""Greatest count that is permuted by sorting hashes, which makes all permutations equally likely.
With few elements, the rounds below would favour some permutations."""

ROUNDS = 8
"""Rounds of the Feistel network. Even, so that halves of unequal width end in their own position.
Four rounds of a strong round function are a pseudo-random permutation (Luby and Rackoff)."""


_AT_ONCE = 1 << 16
"""Places of a stable permutation drawn at once."""


class Permutation(Protocol):
    """A permutation of [0, count)."""

    def forward(self, values: npt.ArrayLike) -> Positions:
        """Returns the images of the values, which must lie in [0, count)."""

    def inverse(self, values: npt.ArrayLike) -> Positions:
        """Returns the preimages of the values: `inverse(forward(x)) == x`."""


def permutation(count: int, *key: int) -> Permutation:
    """Returns the permutation of [0, count) that `key` (any integers) selects."""
    if count < 1:
        raise ValueError(f"a permutation needs at least one element, not {count} elements")
    if count <= SORTED_COUNT:
        return sorted_permutation(count, *key)
    return FeistelPermutation(count, *key)


class ListedPermutation:
    """A permutation whose images are in memory."""

    def __init__(self, images: Positions) -> None:
        self._images = images

    def forward(self, values: npt.ArrayLike) -> Positions:
        images: Positions = self._images[np.atleast_1d(values)]
        return images

    def inverse(self, values: npt.ArrayLike) -> Positions:
        preimages: Positions = self._preimages[np.atleast_1d(values)]
        return preimages

    @cached_property
    def _preimages(self) -> Positions:
        return np.argsort(self._images)


def sorted_permutation(count: int, *key: int) -> ListedPermutation:
    """Returns the order of the hashes of 0, 1, … count - 1 under the key."""
    return ListedPermutation(np.argsort(combine(*key, np.arange(count)), kind="stable"))


class FeistelPermutation:
    """A Feistel network over the next power of two, with cycle walking: a value out of range is
    encrypted again until it lies inside, which takes fewer than two passes on average."""

    def __init__(self, count: int, *key: int) -> None:
        self.count = count
        self._high, self._low = half_widths(count)
        self._keys = [combine(*key, round_number) for round_number in range(ROUNDS)]

    def forward(self, values: npt.ArrayLike) -> Positions:
        return self._cycle_walk(values, self._encrypt)

    def inverse(self, values: npt.ArrayLike) -> Positions:
        return self._cycle_walk(values, self._decrypt)

    def _cycle_walk(self, values: npt.ArrayLike, step: Callable[[Words], Words]) -> Positions:
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


def stable_permutation(count: int, *key: int) -> ListedPermutation:
    """Returns a permutation in O(count) memory that changes in one image when an element is added:
    element n takes the place of a random earlier one, which moves to place n. All permutations are
    equally likely."""
    images = array("q", bytes(8 * count))
    for first in range(0, count, _AT_ONCE):
        numbers = np.arange(first, min(count, first + _AT_ONCE), dtype=np.uint64)
        places = (combine(*key, numbers) % (numbers + np.uint64(1))).tolist()
        for number, place in enumerate(places, first):
            images[number] = images[place]
            images[place] = number
    return ListedPermutation(np.frombuffer(images, np.int64))


def half_widths(count: int) -> tuple[int, int]:
    """Returns the bits of the left and of the right half of numbers in [0, count)."""
    bits = max(2, (count - 1).bit_length())
    return bits - bits // 2, bits // 2


@lru_cache(maxsize=1024)
def cached_permutation(count: int, *key: int) -> Permutation:
    """Returns a cached permutation: batches use the same few epochs and windows."""
    return permutation(count, *key)


@lru_cache(maxsize=4)
def cached_stable_permutation(count: int, *key: int) -> Permutation:
    """Returns a cached permutation; each takes 8 to 16 bytes for an element."""
    return stable_permutation(count, *key)


def _mask(bits: int) -> np.uint64:
    mask: np.uint64 = np.uint64((1 << bits) - 1)
    return mask
