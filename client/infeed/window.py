"""How far ahead a feed asks: a bound in bytes on all that was asked for and not yet taken."""

from __future__ import annotations

FEWEST = 2
"""Batches ahead, whatever they weigh: a single one could not travel while the trainer works."""

MOST = 64
"""Batches ahead, however light they are."""


class Window:
    """The first steps that nobody is to be asked for yet: those from `limit` on. Not thread-safe.

    `batch_bytes` is None where only the batches themselves tell; then the largest seen counts.
    """

    def __init__(self, prefetch_bytes: int, batch_bytes: int | None) -> None:
        self._prefetch_bytes = prefetch_bytes
        self._batch_bytes = batch_bytes or 0
        self._taken = 0
        self.waiting_bytes = 0
        """Of batches that arrived and were not taken yet."""

    @property
    def depth(self) -> int:
        """Batches that may be under way or waiting, together."""
        if not self._batch_bytes:
            return FEWEST
        return min(MOST, max(FEWEST, self._prefetch_bytes // self._batch_bytes))

    @property
    def limit(self) -> int:
        return self._taken + self.depth

    @property
    def limit_bytes(self) -> int:
        """What is under way and what waits may take together."""
        return max(self._prefetch_bytes, FEWEST * self._batch_bytes)

    def saw(self, batch_bytes: int) -> None:
        """A batch of that many bytes arrived."""
        self._batch_bytes = max(self._batch_bytes, batch_bytes)
        self.waiting_bytes += batch_bytes

    def took(self, batch_bytes: int) -> None:
        """The trainer took a batch of that many bytes."""
        self._taken += 1
        self.waiting_bytes -= batch_bytes

    def drop(self) -> None:
        """Nothing waits any more."""
        self.waiting_bytes = 0


__all__ = ["FEWEST", "MOST", "Window"]
