"""One reading of a tf.data dataset, whose end never waits."""

from __future__ import annotations

import sys
import threading
from typing import Any

import tensorflow as tf


class Iteration:
    """The iterator of a dataset, to be closed.

    TensorFlow's iterators can take up to a minute to be destroyed: when the thread that tunes
    them has just gone to sleep, it misses the call to end. So that is left to a thread of its own.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        # The only place that holds it, so that `clear` destroys it.
        self._only: list[Any] = [iter(dataset)]

    def __iter__(self) -> Iteration:
        return self

    def __next__(self) -> Any:
        """The next element; an error of TensorFlow need not be the end."""
        try:
            return next(self._only[0])
        except Exception as error:  # noqa: BLE001 - it is raised again, without its frames
            # TensorFlow's frames hold the iterator. Who lets go of the error last would destroy it,
            # and wait: as a rule the garbage collector, on whatever thread it happens to run.
            error.__context__ = None
            raise error.with_traceback(None) from None

    def close(self) -> None:
        # At the interpreter's end no new thread runs, and starting one would wait for ever.
        if not sys.is_finalizing():
            threading.Thread(target=self._only.clear, name="infeed-retire", daemon=True).start()
