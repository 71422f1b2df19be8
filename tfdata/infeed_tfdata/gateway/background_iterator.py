"""An iterator over a tf.data dataset whose reader is never blocked by a slow element."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from infeed_server.engines.tf_data import TfIterator

_CHECK_INTERVAL_SECONDS = 0.5
"""Seconds between checks of a wait: more, and a lost job is noticed later."""


class BackgroundIterator:
    """An iterator that reads a dataset on a background thread, one element ahead.

    A blocked TensorFlow iterator cannot be cancelled; on its own thread it can be abandoned.
    """

    def __init__(self, dataset: tf.data.Dataset, check: Callable[[float], None], name: str) -> None:
        """`check` is called while no element is ready, with the seconds of the wait; it raises an
        error to end it."""
        self._dataset = dataset
        self._check = check
        self._items: queue.Queue[Any] = queue.Queue(1)
        self._closed = threading.Event()
        self._exhausted = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def __iter__(self) -> BackgroundIterator:
        return self

    def __next__(self) -> Any:
        """Returns the next element. Raises the errors of the dataset and of `check`."""
        if self._exhausted:
            raise StopIteration
        began = time.monotonic()
        while True:
            try:
                item = self._items.get(timeout=_CHECK_INTERVAL_SECONDS)
                break
            except queue.Empty:
                self._check(time.monotonic() - began)
        if isinstance(item, Exception):
            self._exhausted = True
            raise item
        return item

    def close(self) -> None:
        """Releases the dataset once the element in progress is read."""
        self._closed.set()

    def _run(self) -> None:
        elements = TfIterator(self._dataset)
        try:
            while not self._closed.is_set():
                try:
                    item = next(elements)
                except Exception as error:  # noqa: BLE001 - for the reader, StopIteration too
                    self._put(error)
                    return
                self._put(item)
                del item  # or it would be held while the next element is awaited
        finally:
            elements.close()

    def _put(self, item: Any) -> None:
        while not self._closed.is_set():
            try:
                self._items.put(item, timeout=_CHECK_INTERVAL_SECONDS)
            except queue.Full:
                continue
            return
