"""The tf.data pipeline of one batch size: requests in, and batches out in the same order.

    queue → read columns by index (threads) → unbatch → map(sample function) → batch → prefetch

With substitutes for bad samples, each batch has its own `map`, which leaves out a sample that
fails and keeps the others: only the substitute comes back to the queue.

All streams of a batch size share one pipeline, so it is traced, warmed up and autotuned once, and
its memory has one bound.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from infeed.shared.errors import InfeedError, ServerError
from infeed.shared.spec import Array
from infeed.shared.tensorflow.from_callable import from_callable
from infeed_server.engines.base import Answer, shutting_down
from infeed_server.engines.indexed.bad_samples import BadSampleHandler
from infeed_server.engines.indexed.batch_queue import BatchQueue
from infeed_server.engines.indexed.fair_queue import BatchTask, complete
from infeed_server.engines.indexed.shared_batches import SharedBatches
from infeed_server.engines.memory_budget import StreamQuota
from infeed_server.engines.monitor import Monitor, record_stage
from infeed_server.engines.state_clock import PipelineState, StateClock
from infeed_server.engines.tf_data import TfIterator, graph_options, unbatched
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.sources.base import READ_THREADS, Columns, array_bytes

log = logging.getLogger(__name__)

_GRAPH_BATCHES = 2
"""Batches whose samples are made at a time: with one, processors idle while its last is made."""

_READ_AHEAD_BATCHES = 4
"""Batches of encoded samples that are read before the graph needs them."""

_READ_AHEAD_BYTES = 256 << 20
"""Bytes of these batches, if there are two or more: one is read ahead, however large it is."""


class BatchPipeline:
    """Runs the tasks of all sessions of a batch size, and counts those sessions."""

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
        self._keeps_good = plan.spec.on_error != "raise"
        """Whether the graph keeps the good samples of a batch with a bad one. That takes processor
        time of each sample, 10 to 20 µs: nothing to the decoding of a photo, but much to a cheap
        transform."""
        self.queue = BatchQueue(shared)
        self.users = 0
        self._reads: deque[tuple[BatchTask, Future[Columns]]] = deque()
        self._columns_bytes = 0
        """Of the last batch that was read."""
        self._in_graph: deque[BatchTask] = deque()
        """A task is in one of the two until its result is set or it fails."""
        self._repairs: set[BatchTask] = set()
        """Those that have failed, until they are tried again or refused."""
        self.clock = StateClock(self._state)
        self._failure: InfeedError | None = None
        self._lock = threading.Lock()
        self._read_pool = ThreadPoolExecutor(READ_THREADS, f"infeed-read-{plan.spec.name}")
        name = f"infeed-pipeline-{plan.spec.name}-{slots}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: BatchTask) -> Future[Answer]:
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
        for task in self.queue.close():
            complete(task, shutting_down())
        self._thread.join()
        self._read_pool.shutdown()

    def _state(self) -> PipelineState:
        if self._in_graph:
            return "transform"
        if self._reads:
            return "source"
        if self._repairs:
            return "repair"
        return "no_request" if self.queue.is_empty else "no_budget"

    def _run(self) -> None:
        try:
            if self._plan.is_passthrough:
                for task, columns in self._read_columns():
                    task.put(task.left, dict(columns))
                    complete(task, task.to_batch())
                    self._leave_graph()
            else:
                self._run_graph()
        except Exception as error:
            log.exception("the batch pipeline of %r failed", self._plan.spec.name)
            self._fail_all(ServerError(f"the pipeline's engine failed: {error}"))
        else:
            self._fail_all(shutting_down())

    def _run_graph(self) -> None:
        with contextlib.closing(TfIterator(self._dataset())) as batches:
            while True:
                try:
                    slots, index, arrays = next(batches)
                except StopIteration:
                    return
                except tf.errors.OpError as error:
                    # tf.data drops only the batch of the error, and continues.
                    self._on_failed(self._leave_graph(), error)
                else:
                    self._on_rows(np.asarray(slots), np.asarray(index), arrays)

    def _on_rows(self, slots: Array, index: Array, arrays: dict[str, tf.Tensor]) -> None:
        task = self._in_graph[0]
        count = len(slots) - self._keeps_good
        slots, index = slots[:count], index[:count]
        if not np.array_equal(index, task.index[slots]):
            raise ServerError(
                f"tf.data returned another batch than the one of position {task.request.start}"
            )
        span = task.request.span
        record_stage(self._monitor, self._plan.spec.name, "transform", task.entered_at, span)
        task.put(slots, {name: np.asarray(value)[:count] for name, value in arrays.items()})
        if not len(task.left):
            complete(task, task.to_batch())
        self._leave_graph()
        if len(task.left):
            self._on_failed(task, None)

    def _leave_graph(self) -> BatchTask:
        task = self._in_graph.popleft()
        self.clock.update()
        return task

    def _dataset(self) -> tf.data.Dataset:
        """Returns the dataset of the rows that the graph makes of each batch: slots, indices and
        fields."""
        sample_function = self._plan.sample_function()

        # `map` converts the user's functions itself; this package's need no AutoGraph.
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def transform(row: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
            return row["slot"], row["index"], sample_function(row["columns"], row["key"])

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def good_rows(batch: dict[str, Any]) -> Any:
            rows = tf.data.Dataset.from_tensor_slices(batch)
            good = rows.map(transform, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
            # A last row, of zeros: a batch without a good sample is an element, too.
            end = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), good.element_spec)
            ended = good.concatenate(tf.data.Dataset.from_tensors(end))
            return ended.batch(self.slots + 1).get_single_element()

        batches = self._read_batches()
        read = from_callable(lambda _: next(batches, None), self._signature())
        if self._keeps_good:
            made = read.map(good_rows, num_parallel_calls=_GRAPH_BATCHES)
        else:
            mapped = unbatched(read).map(transform, num_parallel_calls=tf.data.AUTOTUNE)
            made = mapped.batch(self.slots, drop_remainder=True)
        return made.prefetch(2).with_options(graph_options())

    def _signature(self) -> dict[str, Any]:
        """Returns the tensor specs of the elements of `_read_batches`."""
        columns = self._plan.source.columns
        return {
            "slot": tf.TensorSpec([None], tf.int64),
            "index": tf.TensorSpec([None], tf.int64),
            "key": tf.TensorSpec([None, 2], tf.int64),
            "columns": {
                name: tf.TensorSpec([None, *spec.shape], spec.dtype)
                for name, spec in columns.items()
            },
        }

    def _read_batches(self) -> Iterator[dict[str, Any]]:
        for task, columns in self._read_columns():
            left = task.left
            index, key = task.index[left], task.key[left]
            yield {"slot": left, "index": index, "key": key, "columns": columns}

    def _read_columns(self) -> Iterator[tuple[BatchTask, Columns]]:
        """Yields the tasks in the queue's order with their columns; reads ahead on threads."""
        while True:
            while len(self._reads) < self._read_ahead():
                work = self.queue.take(wait=not self._reads)
                if work is None:
                    break
                self._start_read(work)
            if not self._reads:
                return
            task, future = self._reads[0]
            error: Exception | None = None
            try:
                columns = future.result()
            except Exception as raised:  # noqa: BLE001 - any error concerns this task alone
                error = raised
            with self._lock:
                if self._failure is not None:
                    return
                self._reads.popleft()
                if error is None:
                    task.entered_at = time.perf_counter()
                    self._in_graph.append(task)
            self.clock.update()
            if error is None:
                self._columns_bytes = sum(map(array_bytes, columns.values()))
                yield task, columns
            else:
                self._on_failed(task, error)

    def _read_ahead(self) -> int:
        """Returns the number of batches to read ahead, if all are like the last."""
        fitting = _READ_AHEAD_BYTES // max(1, self._columns_bytes)
        return max(1, min(_READ_AHEAD_BATCHES, fitting))

    def _on_failed(self, task: BatchTask, error: Exception | None) -> None:
        self._repairs.add(task)
        self._bad_samples.handle(task, error, self._on_examined)

    def _on_examined(self, task: BatchTask, error: InfeedError | None) -> None:
        """Tries a task again whose bad samples have substitutes, or refuses it."""
        if error is None:
            self.queue.retry(task)
        else:
            complete(task, error)
        self._repairs.discard(task)
        self.clock.update()

    def _start_read(self, task: BatchTask) -> None:
        with self._lock:
            if self._failure is None:
                self._reads.append((task, self._read_pool.submit(self._read, task)))
                self.clock.update()
                return
        complete(task, self._failure)

    def _read(self, task: BatchTask) -> Columns:
        if not task.assigned:  # or it is a retry, with its substitutes
            task.assign_samples()
            self._bad_samples.substitute_known(task)
        begin = time.perf_counter()
        columns = self._plan.read(task.index[task.left], task.key[task.left])
        record_stage(self._monitor, self._plan.spec.name, "read", begin, task.request.span)
        return columns

    def _fail_all(self, error: InfeedError) -> None:
        """Fails every task that is waiting or in progress, and all later ones. A failed graph's
        reading thread may still run; it takes no further task."""
        with self._lock:
            self._failure = error
            reading = [task for task, _ in self._reads]
            tasks = [*reading, *self._in_graph, *self.queue.close()]
            self._reads.clear()
            self._in_graph.clear()
        self._read_pool.shutdown(wait=False)
        for task in tasks:
            complete(task, error)
