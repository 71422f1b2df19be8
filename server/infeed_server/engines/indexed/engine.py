"""The indexed engine: batches at any position, at any time, with the same bits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future

from infeed.errors import ServerUnavailableError
from infeed.spec import Array, PipelineSpec
from infeed.spec.dataset import DatasetRequest, RegisteredDataset
from infeed_server.engines.base import (
    Answer,
    HostBatch,
    Request,
    Trainer,
    requires_data_service,
    shutting_down,
)
from infeed_server.engines.indexed.bad_samples import BadSampleHandler, QuarantineLog
from infeed_server.engines.indexed.batch_pipeline import BatchPipeline
from infeed_server.engines.indexed.batch_task import BatchTask, complete
from infeed_server.engines.indexed.fair_queue import FairQueue
from infeed_server.engines.memory_budget import MemoryBudget, StreamQuota
from infeed_server.engines.monitor import Monitor
from infeed_server.order import SampleOrder
from infeed_server.pipeline.indexed_plan import IndexedPlan

_MAX_WARM_SIZES = 4
"""Batch sizes that are kept warm; beyond it, the least recently opened unused one is closed."""

_MAX_SIZES_IN_USE = 16
"""Batch sizes in use at a time: each has threads and buffers of its own, and peers choose it."""


class IndexedEngine:
    """Serves an indexed pipeline through one batch pipeline for each batch size in use."""

    def __init__(
        self, plan: IndexedPlan, quarantine: QuarantineLog, monitor: Monitor, budget: MemoryBudget
    ) -> None:
        self._plan = plan
        self._monitor = monitor
        self._budget = budget
        self._bad_samples = BadSampleHandler(plan, quarantine, monitor)
        self._pipelines: OrderedDict[int, _SharedPipeline] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def spec(self) -> PipelineSpec:
        return self._plan.spec

    def register(self, request: DatasetRequest) -> RegisteredDataset:
        raise requires_data_service(request.pipeline, "data set to read from workers")

    def open(self, slots: int, epochs: int, trainer: Trainer) -> IndexedSession:  # noqa: ARG002
        # The end of the data is arithmetic, and a batch is the same for every trainer.
        if trainer.job_name:
            raise requires_data_service(self.spec.name, "jobs to take part in")
        pipeline = self._pipeline(slots)
        return IndexedSession(pipeline, self._plan, self._budget.open_quota(self.spec.name))

    def warm_up(self) -> Answer:
        session = self.open(self.spec.batch_size, 0, Trainer())
        try:
            size = self.spec.batch_size
            answer = session.submit(Request(self.spec.seed, 0, size, size)).result()
            session.on_sent()
            return answer
        finally:
            session.close()

    def queued_requests(self) -> int:
        with self._lock:
            pipelines = list(self._pipelines.values())
        return sum(len(pipeline.queue) for pipeline in pipelines)

    def unsent_batches(self) -> int:
        return self._budget.held_batches(self.spec.name)

    def unsent_bytes(self) -> int:
        return self._budget.held_bytes(self.spec.name)

    def window_bytes(self) -> int:
        return 0

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pipelines, self._pipelines = list(self._pipelines.values()), OrderedDict()
        for pipeline in pipelines:
            pipeline.close()
        self._bad_samples.close()

    def _pipeline(self, slots: int) -> _SharedPipeline:
        """Adds a user to the pipeline of a batch size. Closes unused pipelines beyond the limit."""
        with self._lock:
            if self._closed:
                raise shutting_down()
            pipeline = self._pipelines.get(slots)
            if pipeline is None or pipeline.queue.closed:
                self._check_sizes_in_use(slots)
                pipeline = _SharedPipeline(self._plan, slots, self._bad_samples, self._monitor)
                self._pipelines[slots] = pipeline
            self._pipelines.move_to_end(slots)
            pipeline.add_user()
            unused = [size for size, other in self._pipelines.items() if not other.users]
            excess = max(0, len(self._pipelines) - _MAX_WARM_SIZES)
            evicted = [self._pipelines.pop(size) for size in unused[:excess]]
        for other in evicted:
            other.close()
        return pipeline

    def _check_sizes_in_use(self, slots: int) -> None:
        used = sorted(size for size, pipeline in self._pipelines.items() if pipeline.users)
        if len(used) >= _MAX_SIZES_IN_USE:
            raise ServerUnavailableError(
                f"{self.spec.name!r} cannot serve batches of {slots} now: it serves batches of "
                f"{len(used)} sizes already ({', '.join(map(str, used))}), the maximum at a time; "
                "use one of these, or another server",
                pipeline=self.spec.name,
                batch_size=slots,
            )


class IndexedSession:
    """One stream on a shared pipeline."""

    def __init__(self, pipeline: _SharedPipeline, plan: IndexedPlan, quota: StreamQuota) -> None:
        self._pipeline = pipeline
        self._plan = plan
        self._quota = quota
        self._order: SampleOrder | None = None

    def set_batch_bytes(self, size: int) -> None:
        self._quota.set_batch_bytes(size)

    def submit(self, request: Request) -> Future[Answer]:
        if self._order is None or self._order.seed != request.seed:
            self._order = self._plan.order(request.seed)
        return self._pipeline.submit(BatchTask(request, self._order, self._quota))

    def on_sent(self) -> None:
        self._pipeline.queue.release(self._quota)

    def close(self) -> None:
        self._pipeline.remove_user(self._quota)


class _SharedPipeline:
    """The batch pipeline of one batch size, with its queue and the count of its sessions."""

    def __init__(
        self, plan: IndexedPlan, slots: int, bad_samples: BadSampleHandler, monitor: Monitor
    ) -> None:
        self._bad_samples = bad_samples
        self.users = 0
        self._lock = threading.Lock()
        self.queue = FairQueue()
        self._pipeline = BatchPipeline(
            plan, slots, self.queue, monitor, self._on_start, self._on_done, self._on_failed
        )

    def submit(self, task: BatchTask) -> Future[Answer]:
        if not self.queue.put(task):
            complete(task, shutting_down())
        return task.future

    def add_user(self) -> None:
        with self._lock:
            self.users += 1

    def remove_user(self, quota: StreamQuota) -> None:
        for task in self.queue.remove(quota):
            task.future.cancel()
        with self._lock:
            self.users -= 1

    def close(self) -> None:
        for task in self.queue.close():
            complete(task, shutting_down())
        self._pipeline.close()

    def _on_start(self, task: BatchTask) -> None:
        if not task.assigned:  # or it is a retry, with its substitutes
            task.assign_samples()
            self._bad_samples.substitute_known(task)

    def _on_done(self, task: BatchTask, arrays: dict[str, Array]) -> None:
        if not task.mask.all():
            arrays = {name: _clear_masked(array, task.mask) for name, array in arrays.items()}
        start, ids = task.request.start, task.sample_ids
        complete(task, HostBatch(start, task.epoch, arrays, ids, task.mask))

    def _on_failed(self, task: BatchTask, error: Exception) -> None:
        self._bad_samples.handle(task, error, retry=self._retry)

    def _retry(self, task: BatchTask) -> None:
        if not self.queue.requeue(task):
            complete(task, shutting_down())


def _clear_masked(array: Array, mask: Array) -> Array:
    """Copies the array with zeros, or empty strings, in the masked slots."""
    result: Array = array.copy()
    result[~mask] = b"" if array.dtype == object else 0
    return result
