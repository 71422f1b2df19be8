"""Memory for batches that is used again: fresh memory costs a page fault for every 4 KiB of it.

An array that was taken is lent until nobody holds it or a view of it any more; then its memory
goes to the next one that asks. Where that is never noticed, memory is just not used again.
"""

from __future__ import annotations

import weakref
from collections import deque
from math import prod

import numpy as np

from infeed.spec import Array

ALIGNMENT = 64
"""Bytes. Where arrays begin, so that frameworks can take one without a copy."""

KEPT = 4
"""Blocks that wait for their next use; more are given back, the oldest first."""

_GRAIN = 1 << 16
"""Blocks are whole multiples of this, so that batches of nearly one size share them."""


class Buffers:
    """Lends uninitialised arrays. Thread-safe; blocks come back from whichever thread drops them.

    Small arrays, which the allocator reuses by itself, pass it by.
    """

    def __init__(self) -> None:
        self._free: deque[Array] = deque(maxlen=KEPT)
        self._lent: dict[int, weakref.ref[Array]] = {}
        self._closed = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """An uninitialised array that begins at a multiple of 64 bytes."""
        size = prod(shape) * dtype.itemsize
        return self.take(size).view(dtype).reshape(shape)

    def take(self, size: int) -> Array:
        """uint8[size], uninitialised."""
        capacity = -(-size // _GRAIN) * _GRAIN + ALIGNMENT
        if capacity <= 2 * _GRAIN:
            return _aligned(np.empty(capacity, np.uint8), size)
        block = self._find(capacity)
        if block is None:
            block = np.empty(capacity, np.uint8)
        # Views of an array whose memory is another object's keep that array alive, so it goes
        # exactly when the last view does. (Views of views of plain arrays skip those between.)
        lent = np.frombuffer(block.data, np.uint8)
        key = id(lent)
        self._lent[key] = weakref.ref(lent, lambda _: self._back(key, block))
        return _aligned(lent, size)

    def close(self) -> None:
        """Keeps nothing from now on; what is lent stays good."""
        self._closed = True
        self._free.clear()

    def _find(self, capacity: int) -> Array | None:
        """A free block of that many bytes, the one used last: it may still be in the cache."""
        for _ in range(len(self._free)):
            try:
                block = self._free.pop()
            except IndexError:  # another thread was quicker
                return None
            if block.nbytes == capacity:
                return block
            self._free.appendleft(block)
        return None

    def _back(self, key: int, block: Array) -> None:
        # May run at any moment, in the middle of a method above too: no lock, single steps only.
        self._lent.pop(key, None)
        if not self._closed:
            self._free.append(block)


def _aligned(raw: Array, size: int) -> Array:
    skip = -raw.ctypes.data % ALIGNMENT
    return raw[skip : skip + size]


__all__ = ["ALIGNMENT", "Buffers"]
