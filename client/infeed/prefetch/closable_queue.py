"""Blocking queue that either side can close."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class QueueClosedError(Exception):
    """Raised when the queue is closed."""


class ClosableQueue(Generic[T]):
    """A FIFO queue of at most `max_items` items; None: of any number."""

    def __init__(self, max_items: int | None = None) -> None:
        self._max_items = max_items
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._closed = False

    def put(self, item: T) -> None:
        """Adds an item; waits while the queue is full. Raises `QueueClosedError`."""
        with self._changed:
            while self._is_full() and not self._closed:
                self._changed.wait()
            if self._closed:
                raise QueueClosedError
            self._items.append(item)
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> T:
        """Removes and returns the oldest item; waits while the queue is empty.

        Raises `QueueClosedError`, and `TimeoutError` after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._items and not self._closed:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                self._changed.wait(left)
            if self._closed:
                raise QueueClosedError
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Discards all items and wakes all waiting threads. Idempotent."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def _is_full(self) -> bool:
        return self._max_items is not None and len(self._items) >= self._max_items
