"""Turn-taking of calls that work on samples, so that any number of them leaves trainers alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")

_working = threading.Lock()


def one_by_one(items: Iterator[T]) -> Iterator[T]:
    """Yields items, each made while no other call makes one."""
    while True:
        with _working:
            item = next(items, None)
        if item is None:
            return
        yield item
