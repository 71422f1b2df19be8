"""An iterator over a tf.data dataset whose close never blocks."""

from __future__ import annotations

import sys
import threading
from typing import Any

import tensorflow as tf


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
