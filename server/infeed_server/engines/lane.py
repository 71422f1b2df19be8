"""One batch size's way through tf.data: requests in, batches out, in the same order.

    queue → read columns by index (threads) → unbatch → map(sample function) → batch → prefetch

One lane serves all streams of its pipeline and batch size, so it is traced, warmed and tuned
once, and its memory has one bound.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.errors import InfeedError, ServerError, ServerUnavailableError
from infeed.pull import pull
from infeed.spec import Array
from infeed_server.engines import host
from infeed_server.engines.iteration import Iteration
from infeed_server.engines.monitor import Monitor
from infeed_server.engines.queue import FairQueue
from infeed_server.engines.work import Work, settle
from infeed_server.pipeline.plan import IndexedPlan
from infeed_server.sources.base import Columns

log = logging.getLogger(__name__)

_READERS = 4
"""Threads that read: enough to hide the latency of a file system, few enough for the GIL."""

_READ_AHEAD = 4
"""Batches of encoded samples that are read before they are asked for."""

Begin = Callable[[Work], None]
Done = Callable[[Work, dict[str, Array]], None]
Failed = Callable[[Work, Exception], None]


class Lane:
    """Runs the work of a queue.

    Calls `begin` for each, from a thread that reads, then `done` or `failed` from its own.
    """

    def __init__(
        self,
        plan: IndexedPlan,
        slots: int,
        queue: FairQueue,
        monitor: Monitor,
        begin: Begin,
        done: Done,
        failed: Failed,
    ) -> None:
        self._plan = plan
        self._slots = slots
        self._queue = queue
        self._monitor = monitor
        self._begin = begin
        self._done = done
        self._failed = failed
        self._inside: deque[Work] = deque()
        self._readers = ThreadPoolExecutor(_READERS, f"infeed-read-{plan.spec.name}")
        name = f"infeed-lane-{plan.spec.name}-{slots}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the lane once the work inside is done; the queue must be closed before."""
        self._thread.join()
        self._readers.shutdown()

    def _run(self) -> None:
        try:
            if self._plan.direct:
                for work, columns in self._read_columns():
                    self._done(work, columns)
            else:
                self._drain()
        except Exception as error:
            log.exception("the lane of %r ended", self._plan.spec.name)
            self._fail_all(ServerError(f"the pipeline's engine failed: {error}"))
        else:
            self._fail_all(ServerUnavailableError("the server is shutting down"))

    def _drain(self) -> None:
        """Takes batches out of tf.data as they come ready."""
        with contextlib.closing(Iteration(self._dataset())) as batches:
            while True:
                try:
                    index, arrays = next(batches)
                except StopIteration:
                    return
                except tf.errors.OpError as error:
                    # tf.data drops just the batch that holds the failing sample, and goes on.
                    self._failed(self._inside.popleft(), error)
                else:
                    self._came(index, arrays)

    def _came(self, index: tf.Tensor, arrays: dict[str, tf.Tensor]) -> None:
        work = self._inside.popleft()
        if not np.array_equal(index, work.index):
            self._inside.appendleft(work)
            raise ServerError("tf.data gave another batch than the one that was asked for")
        seconds = time.perf_counter() - work.entered_at
        self._monitor.stage(self._plan.spec.name, "transform", seconds)
        self._done(work, {name: np.asarray(value) for name, value in arrays.items()})

    def _dataset(self) -> tf.data.Dataset:
        sample_function = self._plan.sample_function()

        # The user's functions are converted by `map` itself; ours need no AutoGraph.
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def one(row: dict[str, Any]) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
            return row["index"], sample_function(row["columns"], row["key"])

        feed = self._feed()
        rows = pull(lambda _: next(feed, None), self._signature())
        mapped = rows.unbatch().map(one, num_parallel_calls=tf.data.AUTOTUNE)
        batched = mapped.batch(self._slots, drop_remainder=True).prefetch(2)
        return batched.with_options(_options())

    def _signature(self) -> dict[str, Any]:
        """What `_feed` yields."""
        columns = self._plan.source.columns
        return {
            "index": tf.TensorSpec([self._slots], tf.int64),
            "key": tf.TensorSpec([self._slots, 2], tf.int64),
            "columns": {
                name: tf.TensorSpec([self._slots, *spec.shape], spec.dtype)
                for name, spec in columns.items()
            },
        }

    def _feed(self) -> Iterator[dict[str, Any]]:
        for work, columns in self._read_columns():
            self._inside.append(work)
            work.entered_at = time.perf_counter()
            yield {"index": work.index, "key": work.key, "columns": columns}

    def _read_columns(self) -> Iterator[tuple[Work, Columns]]:
        """Work in the queue's order, each with its columns; reads ahead on threads."""
        ahead: deque[tuple[Work, Future[Columns]]] = deque()
        while True:
            while len(ahead) < _READ_AHEAD:
                work = self._queue.take(wait=not ahead)
                if work is None:
                    break
                ahead.append((work, self._readers.submit(self._read, work)))
            if not ahead:
                return
            work, reading = ahead.popleft()
            try:
                columns = reading.result()
            except Exception as error:  # noqa: BLE001 - whatever it is belongs to this work alone
                self._failed(work, error)
                continue
            yield work, columns

    def _read(self, work: Work) -> Columns:
        self._begin(work)
        begin = time.perf_counter()
        columns = self._plan.source.read(work.index)
        self._monitor.stage(self._plan.spec.name, "read", time.perf_counter() - begin)
        return columns

    def _fail_all(self, error: InfeedError) -> None:
        for work in [*self._queue.close(), *self._inside]:
            settle(work, error)


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    # The one map that pays is parallel; others would only hold more requests than asked for.
    options.experimental_optimization.map_parallelization = False
    cores = host.processors()
    options.autotune.cpu_budget = cores
    # tf.data's own default is half of the machine's memory, for each pipeline alone.
    options.autotune.ram_budget = host.memory_bytes() // 8
    # An own pool: the thread that waits for requests inside a shared one would starve others.
    # TensorFlow's shared pools also count the machine's processors, whatever the quota is.
    options.threading.private_threadpool_size = cores + 2
    # Samples keep all processors busy; an operation that splits its work would only wake threads.
    options.threading.max_intra_op_parallelism = 1
    return options
