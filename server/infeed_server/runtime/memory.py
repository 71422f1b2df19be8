"""Memory that was freed stays with the process and is used again.

By default glibc gives every block of some MB back to the kernel when it is freed. The next batch
then costs a page fault for every 4 KiB: more than decoding some of its images, and several times
what it costs to send it. What a server holds is bounded elsewhere (queues, windows, caches), so
nothing is won by giving memory back between two batches.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Names of `mallopt`, as <malloc.h> has them."""

_KEPT_BYTES = 1 << 30
"""Free memory at the end of the heap that is kept."""

_LARGEST_BYTES = 1 << 30
"""Blocks that are larger come from the kernel and go back to it."""

_GROWTH_BYTES = 1 << 26
"""The heap grows by so much at a time. What nobody touches costs nothing."""


def keep_freed_memory() -> bool:
    """Sets the allocator of this process; False where it cannot be told (no glibc)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    done = [
        mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES),
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES),
        mallopt(_TOP_PAD, _GROWTH_BYTES),
    ]
    return all(done)
