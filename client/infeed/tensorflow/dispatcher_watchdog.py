"""Watchdog of a dispatcher: logs when it is lost, since TensorFlow waits for it silently."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from queue import Empty, SimpleQueue

import tensorflow as tf

from infeed.rpc.tf_dispatcher import DispatcherClient
from infeed.shared.errors import InfeedError

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 10.0
"""Time between two calls to the dispatcher."""

LOST_TIMEOUT_SECONDS = 20.0
"""Time without an answer after which the dispatcher is logged as lost."""


class DispatcherWatchdog:
    """Logs when a pipeline's dispatcher stops answering, and when it answers again."""

    def __init__(
        self, dispatcher: str, pipeline: str, lost_timeout: float = LOST_TIMEOUT_SECONDS
    ) -> None:
        self._dispatcher = dispatcher
        self._pipeline = pipeline
        self._lost_timeout = lost_timeout
        self._answered_at = time.monotonic()
        self._lost = False

    def check(self) -> None:
        """Calls the dispatcher once, and logs a change."""
        try:
            DispatcherClient(self._dispatcher).get_version()
        except InfeedError as error:
            silent_seconds = time.monotonic() - self._answered_at
            if silent_seconds >= self._lost_timeout and not self._lost:
                self._lost = True
                log.warning(
                    "%s: the dispatcher at %s has not answered for %.0f s; the dataset waits for "
                    "it: %s",
                    self._pipeline,
                    self._dispatcher,
                    silent_seconds,
                    error.message,
                )
            return
        if self._lost:
            log.warning(
                "%s: the dispatcher at %s answers again, after %.0f s",
                self._pipeline,
                self._dispatcher,
                time.monotonic() - self._answered_at,
            )
        self._lost = False
        self._answered_at = time.monotonic()


def watch(
    dataset: tf.data.Dataset, watchdog: DispatcherWatchdog, interval: float = CHECK_INTERVAL_SECONDS
) -> None:
    """Checks every `interval` seconds on a thread, as long as the dataset is in use.

    Iterators, and datasets derived from it, keep it in use.
    """
    # The garbage collector may run the finalizer between any two lines of any thread. Only
    # `SimpleQueue.put` may then interrupt its own `get`; `Event.set` would deadlock on the lock
    # that `wait` holds.
    unused: SimpleQueue[None] = SimpleQueue()
    weakref.finalize(dataset, unused.put, None)
    threading.Thread(
        target=_check_until_unused,
        args=(watchdog, unused, interval),
        name="infeed-watchdog",
        daemon=True,
    ).start()


def _check_until_unused(
    watchdog: DispatcherWatchdog, unused: SimpleQueue[None], interval: float
) -> None:
    while True:
        try:
            unused.get(timeout=interval)
        except Empty:
            watchdog.check()
        else:
            return
