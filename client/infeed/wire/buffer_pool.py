"""Pool of reusable memory for batches: fresh memory costs a page fault for every 4 KiB.

An array is lent until no reference to it or to a view of it is left.
"""

from __future__ import annotations

import weakref
from collections import deque
from math import prod

import numpy as np

from infeed.shared.spec import Array

ALIGNMENT = 64
"""Alignment of arrays in bytes, so that frameworks can use them without a copy."""

MAX_FREE_BLOCKS = 4
"""Blocks kept for reuse; beyond that, the oldest are freed."""

_BLOCK_MULTIPLE = 1 << 16
"""Block sizes are multiples of this, in bytes, so that batches of similar sizes share blocks."""


class BufferPool:
    """Lends uninitialized arrays. Thread-safe: any thread may drop the last reference."""

    def __init__(self) -> None:
        self._free: deque[Array] = deque(maxlen=MAX_FREE_BLOCKS)
        self._lent: dict[int, weakref.ref[Array]] = {}
        self._closed = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Returns an uninitialized array, aligned to 64 bytes."""
        size = prod(shape) * dtype.itemsize
        return self.allocate(size).view(dtype).reshape(shape)

    def allocate(self, size: int) -> Array:
        """Returns an uninitialized uint8[size], aligned to 64 bytes."""
        capacity = -(-size // _BLOCK_MULTIPLE) * _BLOCK_MULTIPLE + ALIGNMENT
        if capacity <= 2 * _BLOCK_MULTIPLE:
            return _align(np.empty(capacity, np.uint8), size)
        block = self._pop_free(capacity)
        if block is None:
            block = np.empty(capacity, np.uint8)
        # A view of a view refers to the last array of the chain: `lent`, whose own base is a
        # memoryview. So its last view frees it.
        lent = np.frombuffer(block.data, np.uint8)
        key = id(lent)
        self._lent[key] = weakref.ref(lent, lambda _: self._release(key, block))
        return _align(lent, size)

    def close(self) -> None:
        """Frees the pool; arrays that are lent stay valid."""
        self._closed = True
        self._free.clear()

    def _pop_free(self, capacity: int) -> Array | None:
        """Removes and returns the most recently used free block of `capacity` bytes."""
        for _ in range(len(self._free)):
            try:
                block = self._free.pop()
            except IndexError:  # another thread has taken it
                return None
            if block.nbytes == capacity:
                return block
            self._free.appendleft(block)
        return None

    def _release(self, key: int, block: Array) -> None:
        # May run at any point of the methods above, on the same thread: a lock would deadlock, so
        # each step is atomic.
        self._lent.pop(key, None)
        if not self._closed:
            self._free.append(block)


def _align(raw: Array, size: int) -> Array:
    offset = -raw.ctypes.data % ALIGNMENT
    return raw[offset : offset + size]
