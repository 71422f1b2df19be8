"""Watchdog of a dispatcher: logs when it is lost, since TensorFlow waits for it silently."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from queue import Empty, SimpleQueue

import tensorflow as tf

from infeed.shared.errors import InfeedError
from infeed_tfdata.rpc import DispatcherClient

log = logging.getLogger(__name__)

CHECK_INTERVAL_SECONDS = 10.0
"""Time between two calls to the dispatcher."""

LOST_TIMEOUT_SECONDS = 20.0
"""Time without an answer after which the dispatcher is logged as lost."""


def watch(dataset: tf.data.Dataset, dispatcher: str, pipeline: str) -> None:
    """Checks the dispatcher on a thread, as long as the dataset is in use, and logs its loss.

    Iterators, and datasets derived from it, keep it in use.
    """
    # The garbage collector may run the finalizer between any two lines of any thread. Only
    # `SimpleQueue.put` may then interrupt its own `get`; `Event.set` would deadlock on the lock
    # that `wait` holds.
    unused: SimpleQueue[None] = SimpleQueue()
    weakref.finalize(dataset, unused.put, None)
    threading.Thread(
        target=_check_until_unused,
        args=(dispatcher, pipeline, unused),
        name="infeed-watchdog",
        daemon=True,
    ).start()


def _check_until_unused(dispatcher: str, pipeline: str, unused: SimpleQueue[None]) -> None:
    answered_at, lost = time.monotonic(), False
    while True:
        try:
            unused.get(timeout=CHECK_INTERVAL_SECONDS)
            return
        except Empty:
            pass
        try:
            DispatcherClient(dispatcher).get_version()
        except InfeedError as error:
            seconds = time.monotonic() - answered_at
            if seconds >= LOST_TIMEOUT_SECONDS and not lost:
                lost = True
                log.warning(
                    "%s: the dispatcher at %s has not answered for %.0f s; the dataset waits for "
                    "it: %s",
                    pipeline,
                    dispatcher,
                    seconds,
                    error.message,
                )
            continue
        if lost:
            log.warning("%s: the dispatcher at %s answers again", pipeline, dispatcher)
        answered_at, lost = time.monotonic(), False
