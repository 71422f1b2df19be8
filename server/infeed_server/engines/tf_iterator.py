"""Iterators over tf.data datasets that never block their reader: on close, or on a slow element."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_CHECK_INTERVAL_SECONDS = 0.5


class TfIterator:
    """An iterator over a dataset; it must be closed.

    TensorFlow's iterators can take up to a minute to be destroyed: when their autotuning thread has
    just gone to sleep, it misses the request to end. So a thread of its own destroys them.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        # The only reference, so that `clear` destroys the iterator.
        self._only: list[Any] = [iter(dataset)]

    def __iter__(self) -> TfIterator:
        return self

    def __next__(self) -> Any:
        """Returns the next element. An error of TensorFlow need not be the end."""
        try:
            return next(self._only[0])
        except Exception as error:  # noqa: BLE001 - raised again, without its frames
            # TensorFlow's frames hold the iterator. The last reference to the error would destroy
            # it, and block: usually in the garbage collector, on an arbitrary thread.
            error.__context__ = None
            raise error.with_traceback(None) from None

    def close(self) -> None:
        # At interpreter exit no new thread runs, and starting one would block forever.
        if not sys.is_finalizing():
            threading.Thread(target=self._only.clear, name="infeed-retire", daemon=True).start()


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
