"""How threads hand things on: a queue that can be closed from either side."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class HandoffClosedError(Exception):
    """The handoff was closed; whoever waits on it can go home."""


class Handoff(Generic[T]):
    """A first-in, first-out queue; `limit` None means that the sender is bounded elsewhere."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: T) -> None:
        """Waits for room. Raises `HandoffClosedError`."""
        with self._changed:
            while self._limit is not None and len(self._items) >= self._limit and not self._closed:
                self._changed.wait()
            if self._closed:
                raise HandoffClosedError
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> T:
        """The next item. Raises `HandoffClosedError`, and `TimeoutError` after these seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._items and not self._closed:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._changed.wait(left)
            if self._closed:
                raise HandoffClosedError
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Drops what is inside and wakes everybody. Idempotent."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


__all__ = ["Handoff", "HandoffClosedError"]
