"""How far ahead a feed asks: a bound in bytes on all that was asked for and not yet taken."""

from __future__ import annotations

import threading

FEWEST = 2
"""Batches ahead, whatever they weigh: a single one could not travel while the trainer works."""

MOST = 64
"""Batches ahead, however light they are."""


class Window:
    """Admits step n once fewer than `depth` steps before it wait to be taken by the trainer.

    `batch_bytes` is None where only the batches themselves tell; then the largest seen counts.
    """

    def __init__(self, prefetch_bytes: int, batch_bytes: int | None) -> None:
        self._prefetch_bytes = prefetch_bytes
        self._batch_bytes = batch_bytes or 0
        self._taken = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def depth(self) -> int:
        """Batches that may be under way or waiting, together."""
        if not self._batch_bytes:
            return FEWEST
        return min(MOST, max(FEWEST, self._prefetch_bytes // self._batch_bytes))

    def admit(self, step: int, over: threading.Event) -> bool:
        """Waits for the turn of a step; False when the stream that would ask for it is over."""
        with self._changed:
            while not (self._closed or over.is_set()) and step >= self._taken + self.depth:
                self._changed.wait()
            return not (self._closed or over.is_set())

    def saw(self, batch_bytes: int) -> None:
        """A batch of that many bytes arrived."""
        if batch_bytes <= self._batch_bytes:
            return
        with self._changed:
            self._batch_bytes = batch_bytes
            self._changed.notify_all()

    def took(self) -> None:
        """The trainer took a batch."""
        with self._changed:
            self._taken += 1
            self._changed.notify_all()

    def end(self, over: threading.Event) -> None:
        """Declares one stream over and frees who waits to ask it."""
        with self._changed:
            over.set()
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


__all__ = ["FEWEST", "MOST", "Window"]
