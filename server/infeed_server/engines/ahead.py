"""A dataset read on a thread of its own, by somebody who does not wait for ever."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from infeed_server.engines.iteration import Iteration

_LOOK_SECONDS = 0.5


class Ahead:
    """One reading of a dataset. An iteration of TensorFlow that waits cannot be called off; so it
    waits on its own thread, one element ahead, and is left behind with it where it never ends."""

    def __init__(self, dataset: tf.data.Dataset, check: Callable[[], None], name: str) -> None:
        """`check` is called while there is nothing, and raises what is to end the wait."""
        self._dataset = dataset
        self._check = check
        self._came: queue.Queue[Any] = queue.Queue(1)
        self._closed = threading.Event()
        self._over = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> Any:
        """The next element. Raises what the dataset does, and what `check` does."""
        if self._over:
            raise StopIteration
        while True:
            try:
                came = self._came.get(timeout=_LOOK_SECONDS)
                break
            except queue.Empty:
                self._check()
        if isinstance(came, Exception):
            self._over = True
            raise came
        return came

    def close(self) -> None:
        """Lets go of the dataset, when the element that is awaited has come."""
        self._closed.set()

    def _run(self) -> None:
        elements = Iteration(self._dataset)
        try:
            while not self._closed.is_set():
                try:
                    came = next(elements)
                except Exception as error:  # noqa: BLE001 - it is for who reads, StopIteration too
                    self._put(error)
                    return
                self._put(came)
                del came  # or the last element would be held while the next one is awaited
        finally:
            elements.close()

    def _put(self, came: Any) -> None:
        while not self._closed.is_set():
            try:
                self._came.put(came, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return


__all__ = ["Ahead"]
