"""Says in the log that the dispatcher is lost: TensorFlow waits for it without a word."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from queue import Empty, SimpleQueue

import tensorflow as tf

from infeed.errors import InfeedError
from infeed.inquiry import Dispatcher

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Between two looks at the dispatcher."""

LOST_SECONDS = 20.0
"""Without an answer, after which it counts as lost."""


class Vigil:
    """Over one dispatcher, on behalf of who reads a pipeline."""

    def __init__(self, dispatcher: str, pipeline: str, lost_seconds: float = LOST_SECONDS) -> None:
        self._dispatcher = dispatcher
        self._pipeline = pipeline
        self._lost_seconds = lost_seconds
        self._answered_at = time.monotonic()
        self._lost = False

    def look(self) -> None:
        """Asks the dispatcher, and says in the log when it is lost and when it is back."""
        try:
            Dispatcher(self._dispatcher).version()
        except InfeedError as error:
            silent = time.monotonic() - self._answered_at
            if silent >= self._lost_seconds and not self._lost:
                self._lost = True
                log.warning(
                    "%s: the dispatcher at %s has not answered for %.0f s, and who reads waits for "
                    "it: %s",
                    self._pipeline,
                    self._dispatcher,
                    silent,
                    error.message,
                )
            return
        if self._lost:
            silent = time.monotonic() - self._answered_at
            log.warning(
                "%s: the dispatcher at %s answers again, after %.0f s",
                self._pipeline,
                self._dispatcher,
                silent,
            )
        self._lost = False
        self._answered_at = time.monotonic()


def watch(dataset: tf.data.Dataset, vigil: Vigil, every: float = LOOK_SECONDS) -> None:
    """Looks every so many seconds, as long as the data set is in use: iterators, and data sets made
    of it, hold it."""
    # The garbage collector may run the finalizer in the middle of any line of any thread. Of what
    # wakes a thread, only this queue's `put` can interrupt its own `get`; an event's `set` would
    # wait for ever for the lock that `wait` holds.
    over: SimpleQueue[None] = SimpleQueue()
    weakref.finalize(dataset, over.put, None)
    threading.Thread(
        target=_keep, args=(vigil, over, every), name="infeed-vigil", daemon=True
    ).start()


def _keep(vigil: Vigil, over: SimpleQueue[None], every: float) -> None:
    while True:
        try:
            over.get(timeout=every)
        except Empty:
            vigil.look()
        else:
            return


__all__ = ["LOOK_SECONDS", "LOST_SECONDS", "Vigil", "watch"]
