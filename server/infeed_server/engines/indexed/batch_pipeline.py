"""The tf.data pipeline of one batch size: requests in, and batches out in the same order.

    queue → read columns by index (threads) → unbatch → map(sample function) → batch → prefetch

The native decoder is between the first two; samples that it completes need no graph. All streams of
a batch size share one pipeline, so it is traced, warmed up and autotuned once, and its memory has
one bound.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from infeed.shared.errors import InfeedError, ServerError
from infeed.shared.spec import Array
from infeed_server.engines.base import Answer, HostBatch, shutting_down
from infeed_server.engines.indexed.bad_samples import BadSampleHandler
from infeed_server.engines.indexed.batch_graph import Rows, batch_dataset, make_early, maps_each
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.indexed.fair_queue import FairQueue
from infeed_server.engines.indexed.shared_batches import SharedBatches
from infeed_server.engines.memory_budget import StreamQuota
from infeed_server.engines.monitor import Monitor, record_stage
from infeed_server.engines.state_clock import PipelineState, StateClock
from infeed_server.engines.tf_data import TfIterator
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.pipeline.native_pictures import decode_threads
from infeed_server.sources.base import READ_THREADS, array_bytes

log = logging.getLogger(__name__)

_READ_AHEAD_BATCHES = 4
"""Batches of encoded samples that are read before the graph needs them."""

_READ_AHEAD_BYTES = 256 << 20
"""Maximum bytes of these batches if there are two or more; one is read ahead at any size."""


class BatchPipeline:
    """Runs the tasks of all sessions of a batch size, and counts the sessions."""

    def __init__(
        self,
        plan: IndexedPlan,
        slots: int,
        shared: SharedBatches,
        bad_samples: BadSampleHandler,
        monitor: Monitor,
    ) -> None:
        self._plan = plan
        self.slots = slots
        self._bad_samples = bad_samples
        self._monitor = monitor
        self._extra_rows = int(maps_each(plan))
        """Rows that the graph makes of a batch, besides its samples."""
        self.queue = FairQueue()
        self._shared = shared
        self.users = 0
        self._reads: deque[tuple[BatchTask, Future[Rows]]] = deque()
        self._columns_bytes = 0
        """Of the last batch that was read."""
        self._in_graph: deque[BatchTask] = deque()
        """A task is in one of the two until its result is set or it fails."""
        self._decoding: set[BatchTask] = set()
        """Tasks of `_reads` that are in the native decoder."""
        self._repairs: set[BatchTask] = set()
        """Tasks that have failed, until they are completed."""
        self.clock = StateClock(self._state)
        self._failure: InfeedError | None = None
        self._lock = threading.Lock()
        self._read_pool = ThreadPoolExecutor(READ_THREADS, f"infeed-read-{plan.spec.name}")
        name = f"infeed-pipeline-{plan.spec.name}-{slots}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: BatchTask) -> Future[Answer]:
        self._shared.announce(task)
        self.queue.put(task)
        self.clock.update()
        return task.future

    def add_user(self) -> None:
        with self._lock:
            self.users += 1

    def remove_user(self, quota: StreamQuota) -> None:
        self.queue.remove(quota)
        self.clock.update()
        with self._lock:
            self.users -= 1

    def close(self) -> None:
        """Fails the waiting tasks, and waits for those in progress."""
        self.queue.close(shutting_down())
        self._thread.join()
        self._read_pool.shutdown()

    def _state(self) -> PipelineState:
        if self._in_graph or self._decoding:
            return "transform"
        if self._reads:
            return "source"
        if self._repairs:
            return "repair"
        return "no_request" if self.queue.is_empty else "no_budget"

    def _run(self) -> None:
        try:
            if self._plan.is_passthrough:
                deque(self._read_rows(), 0)
            else:
                self._run_graph()
        except Exception as error:
            log.exception("the batch pipeline of %r failed", self._plan.spec.name)
            self._fail_all(ServerError(f"the pipeline's engine failed: {error}"))
        else:
            self._fail_all(shutting_down())

    def _run_graph(self) -> None:
        dataset = batch_dataset(self._plan, self.slots, self._read_rows())
        with contextlib.closing(TfIterator(dataset)) as batches:
            while True:
                try:
                    slots, index, arrays = next(batches)
                except StopIteration:
                    return
                except (tf.errors.OpError, UnicodeDecodeError) as error:
                    # An error's text need not be UTF-8. tf.data drops only the batch of the error,
                    # and continues.
                    self._on_failed(self._leave_graph(), error)
                else:
                    self._on_rows(np.asarray(slots), np.asarray(index), arrays)

    def _on_rows(self, slots: Array, index: Array, arrays: dict[str, tf.Tensor]) -> None:
        task = self._in_graph[0]
        count = len(slots) - self._extra_rows
        slots, index = slots[:count], index[:count]
        if not np.array_equal(index, task.index[slots]):
            raise ServerError(
                f"tf.data returned a batch other than that at position {task.request.start}"
            )
        span = task.request.span
        record_stage(self._monitor, self._plan.spec.name, "transform", task.entered_at, span)
        task.put(slots, {name: np.asarray(value)[:count] for name, value in arrays.items()})
        if not len(task.left):
            self._shared.settle(task, task.to_batch())
        self._leave_graph()
        if len(task.left):
            self._on_failed(task, None)

    def _leave_graph(self) -> BatchTask:
        task = self._in_graph.popleft()
        self.clock.update()
        return task

    def _read_rows(self) -> Iterator[Rows]:
        """Yields the rows of batches in the queue's order, and completes those that need no graph;
        reads ahead on threads."""
        while True:
            while len(self._reads) < self._read_ahead():
                task = self.queue.take(wait=not self._reads)
                if task is None:
                    break
                if not self._shared.join(task):
                    self._start_read(task)
            if not self._reads:
                return
            task, future = self._reads[0]
            error: Exception | None = None
            try:
                rows = future.result()
            except Exception as raised:  # noqa: BLE001 - any error concerns this task alone
                error = raised
            with self._lock:
                if self._failure is not None:
                    return
                self._reads.popleft()
                if error is None and len(rows["slot"]):
                    task.entered_at = time.perf_counter()
                    self._in_graph.append(task)
            self.clock.update()
            if error is not None:
                self._on_failed(task, error)
                continue
            arrays = (*rows["columns"].values(), *task.arrays.values())
            self._columns_bytes = sum(map(array_bytes, arrays))
            if len(rows["slot"]):
                yield rows
            elif len(task.left):
                self._on_failed(task, None)
            else:
                self._shared.settle(task, task.to_batch())

    def _read_ahead(self) -> int:
        """Returns the number of batches to read ahead, if all are like the last."""
        fitting = _READ_AHEAD_BYTES // max(1, self._columns_bytes)
        return max(1, min(_READ_AHEAD_BATCHES, fitting))

    def _on_failed(self, task: BatchTask, error: Exception | None) -> None:
        self._repairs.add(task)
        self._bad_samples.handle(task, error, self._on_repaired)

    def _on_repaired(self, task: BatchTask, result: HostBatch | InfeedError) -> None:
        self._shared.settle(task, result)
        self._repairs.discard(task)
        self.clock.update()

    def _start_read(self, task: BatchTask) -> None:
        with self._lock:
            if self._failure is None:
                self._reads.append((task, self._read_pool.submit(self._read, task)))
                self.clock.update()
                return
        self._shared.settle(task, self._failure)

    def _read(self, task: BatchTask) -> Rows:
        task.assign_samples()
        self._bad_samples.substitute_known(task)
        begin = time.perf_counter()
        columns = self._plan.read(task.index, task.key)
        record_stage(self._monitor, self._plan.spec.name, "read", begin, task.request.span)
        begin = time.perf_counter()
        self._decoding.add(task)
        self.clock.update()
        try:
            cut_off, run = not self._extra_rows, decode_threads().map
            rows = make_early(self._plan, task, task.left, columns, run, cut_off=cut_off)
        finally:
            self._decoding.discard(task)
            self.clock.update()
        if self._plan.native is not None and not len(rows["slot"]):
            span = task.request.span
            record_stage(self._monitor, self._plan.spec.name, "transform", begin, span)
        return rows

    def _fail_all(self, error: InfeedError) -> None:
        """Fails every task that is waiting or in progress, and all later ones. A failed graph's
        reading thread may still run; it takes no further task."""
        with self._lock:
            self._failure = error
            reading = [task for task, _ in self._reads]
            tasks = [*reading, *self._in_graph]
            self._reads.clear()
            self._in_graph.clear()
        self._read_pool.shutdown(wait=False)
        self.queue.close(error)
        for task in tasks:
            self._shared.settle(task, error)
