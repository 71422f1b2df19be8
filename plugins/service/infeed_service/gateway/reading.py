"""The read of one job: its elements, or the reason why no more can arrive.

TensorFlow's client waits without a timeout for a lost worker. When a dispatcher has lost its
journal, the client fails with an error about an unknown id, or mistakes the job that now has the id
for its own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator
from contextlib import closing, suppress
from typing import Any

import tensorflow as tf

from infeed.shared.errors import InfeedError, SourceError
from infeed_server.engines.tf_data import TfIterator, start_thread
from infeed_service.gateway.client import LOST_TIMEOUT_SECONDS, DataServiceClient

_CHECK_INTERVAL_SECONDS = 0.5
"""Period of the checks while waiting; a longer one delays the detection of a lost job."""


def read_job(
    client: DataServiceClient, dataset: tf.data.Dataset, pipeline: str
) -> Generator[Any, None, None]:
    """Yields the elements of a job's dataset. Raises the dataset's errors, and `SourceError` if the
    rest of the job is lost.

    A blocked TensorFlow iterator cannot be cancelled, so it runs on its own thread, one element
    ahead, and can be abandoned.
    """
    lost_journals = client.lost_journals

    def require_job() -> None:
        if client.lost_journals != lost_journals:
            raise SourceError(
                f"the job of {pipeline!r} was lost: the dispatcher at {client.address} restarted "
                "without its journal; start the feed again from the beginning, and give the "
                "dispatcher a permanent --work-dir",
                pipeline=pipeline,
            )

    items: queue.Queue[Any] = queue.Queue(1)
    closed = threading.Event()
    start_thread(f"infeed-service-{pipeline}", _read, dataset, items, closed)
    try:
        began_at = waits_since = time.monotonic()
        while True:
            try:
                item = items.get(timeout=_CHECK_INTERVAL_SECONDS)
            except queue.Empty:
                client.require()
                require_job()
                _require_workers(client, pipeline, began_at, time.monotonic() - waits_since)
                continue
            if isinstance(item, StopIteration):
                return
            if isinstance(item, Exception):
                raise item
            require_job()
            yield item
            waits_since = time.monotonic()
    except tf.errors.OpError:  # a lost job may explain it
        with suppress(InfeedError):
            client.check_journal()
        require_job()
        raise
    finally:
        closed.set()


def _require_workers(
    client: DataServiceClient, pipeline: str, began_at: float, waited_seconds: float
) -> None:
    """Raises `SourceError` if the tasks of workers that were lost during the read should have ended
    long ago."""
    lost = client.lost_for(LOST_TIMEOUT_SECONDS, began_at)
    if lost and waited_seconds >= LOST_TIMEOUT_SECONDS:
        raise SourceError(
            f"no batch of {pipeline!r} for {waited_seconds:.0f} s, and workers of TensorFlow's "
            f"data service are lost: {', '.join(lost)}; restart them at these addresses, then "
            "start the feed again from the beginning",
            pipeline=pipeline,
            workers=", ".join(lost),
        )


def _read(dataset: tf.data.Dataset, items: queue.Queue[Any], closed: threading.Event) -> None:
    """Queues the elements, then the error or `StopIteration` that ends them, until `closed`."""
    with closing(TfIterator(dataset)) as elements:
        item: Any = None
        while not closed.is_set() and not isinstance(item, Exception):
            try:
                item = next(elements)
            except Exception as error:  # noqa: BLE001 - the reader raises it; StopIteration too
                item = error
            while not closed.is_set():
                with suppress(queue.Full):
                    items.put(item, timeout=_CHECK_INTERVAL_SECONDS)
                    break
            if not isinstance(item, Exception):
                item = None  # frees its memory while the next element is awaited
