"""The indexed engine: batches at any position, at any time, with the same bits."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import Any

from infeed.shared.errors import InfeedError, ServerUnavailableError
from infeed.shared.spec import Array
from infeed.shared.spec.segment import Lineage
from infeed_server.engines.base import (
    Answer,
    Engine,
    Request,
    RunKey,
    Session,
    Trainer,
    shutting_down,
)
from infeed_server.engines.figures import Figures
from infeed_server.engines.indexed.bad_samples import BadSampleHandler
from infeed_server.engines.indexed.batch_pipeline import BatchPipeline
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.indexed.quarantine import Quarantine
from infeed_server.engines.indexed.shared_batches import SharedBatches
from infeed_server.engines.memory_budget import MemoryBudget, StreamQuota
from infeed_server.engines.monitor import Monitor
from infeed_server.engines.state_clock import STATES, StateSeconds, total_seconds
from infeed_server.order import RunOrder
from infeed_server.pipeline.indexed_plan import IndexedPlan
from infeed_server.transforms.decode import DecodeAndCrop, DecodeImage

_MAX_WARM_SIZES = 4
"""Batch sizes kept warm: beyond this number, the least recently opened unused one is closed."""

_MAX_SIZES_IN_USE = 16
"""Maximum batch sizes in use at a time: peers choose them, and each has its own threads and
buffers."""


class IndexedEngine(Engine):
    """Serves an indexed pipeline through one batch pipeline for each batch size in use."""

    def __init__(
        self, plan: IndexedPlan, quarantine: Quarantine, monitor: Monitor, budget: MemoryBudget
    ) -> None:
        super().__init__(plan.spec, budget)
        self.plan = plan
        self._monitor = monitor
        self._quarantine = quarantine
        self._bad_samples = BadSampleHandler(plan, quarantine, monitor)
        self.shared = SharedBatches(budget)
        self._pipelines: OrderedDict[int, BatchPipeline] = OrderedDict()
        self._ended_seconds: StateSeconds = dict.fromkeys(STATES, 0.0)
        """The time in each state of closed batch pipelines."""
        self._lock = threading.Lock()
        self._closed = False

    def order(self, seed: int, lineage: Lineage = ()) -> RunOrder:
        return self.plan.order(seed, lineage)

    def known_bad(self) -> Array:
        """Returns the samples known to be bad under any key; none if bad samples are errors."""
        return self._bad_samples.known()

    def open(self, slots: int, epochs: int, trainer: Trainer) -> IndexedSession:  # noqa: ARG002
        # The end of the data is arithmetic, and a batch is the same for every trainer.
        quota = self.budget.open_quota(self.spec.name)
        return IndexedSession(self, self.plan, quota, trainer, slots)

    def warm_up(self) -> Answer:
        session = self.open(self.spec.batch_size, 0, Trainer())
        try:
            size = self.spec.batch_size
            answer = session.submit(Request(self.spec.seed, 0, size, size)).result()
            session.on_sent()
            first = self.plan.order(self.spec.seed).slots(0, 1)
            self._bad_samples.warm_up(int(first.index[0]), first.key[0])
            return answer
        finally:
            session.close()

    def figures(self) -> Figures:
        with self._lock:
            pipelines = list(self._pipelines.values())
            clocks = [pipeline.clock.seconds() for pipeline in pipelines]
            seconds = total_seconds([self._ended_seconds, *clocks])
        counts = {f"{origin}_samples": count for origin, count in self.shared.samples.items()}
        if (cache := self.plan.cache) is not None:
            counts |= {"cache_hits": cache.hits, "cache_misses": cache.misses}
        return Figures(
            queued_requests=sum(len(pipeline.queue) for pipeline in pipelines),
            window_bytes=self.shared.kept_bytes,
            cache_bytes=0 if cache is None else cache.used_bytes,
            state_seconds=seconds,
            python_work=self.plan.uncached[0].work(),
            sample_counts=counts,
            pictures=self._pictures(),
            decoder=str(self.plan.pictures),
        )

    def _pictures(self) -> dict[str, int]:
        """Returns the pictures by decoder; empty if the pipeline decodes none."""
        plan, samples = self.plan, self.shared.samples
        if not isinstance(plan.pictures, str):
            return plan.pictures.counts.by_decoder()
        made = samples["computed"] + samples["recomputed"]
        decoders = DecodeImage, DecodeAndCrop
        if plan.cache and not any(isinstance(step, decoders) for _, step in plan.steps):
            made = plan.cache.misses
        return {"native": 0, "tensorflow": made} if plan.pictures else {}

    def bad_samples(self) -> list[dict[str, Any]]:
        return self._quarantine.to_json()

    def provenance(self, sample_id: int) -> tuple[str | None, int | None]:
        origin = self.plan.source.provenance(sample_id)
        return origin.file, origin.offset

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pipelines, self._pipelines = list(self._pipelines.values()), OrderedDict()
        # First, since the pipelines wait for reads, and a read in a user's code may never end.
        self.plan.source.close()
        for pipeline in pipelines:
            pipeline.close()
        self._bad_samples.close()

    def pipeline(self, slots: int) -> BatchPipeline:
        """Adds a user to the pipeline of a batch size. Closes unused pipelines beyond the limit."""
        with self._lock:
            if self._closed:
                raise shutting_down()
            pipeline = self._pipelines.get(slots)
            if pipeline is None or pipeline.queue.closed:
                self._check_sizes_in_use(slots)
                pipeline = BatchPipeline(
                    self.plan, slots, self.shared, self._bad_samples, self._monitor
                )
                self._pipelines[slots] = pipeline
            self._pipelines.move_to_end(slots)
            pipeline.add_user()
            unused = [size for size, other in self._pipelines.items() if not other.users]
            excess = max(0, len(self._pipelines) - _MAX_WARM_SIZES)
            evicted = [self._pipelines.pop(size) for size in unused[:excess]]
            seconds = [other.clock.seconds() for other in evicted]
            self._ended_seconds = total_seconds([self._ended_seconds, *seconds])
        for other in evicted:
            other.close()
        return pipeline

    def _check_sizes_in_use(self, slots: int) -> None:
        used = sorted(size for size, pipeline in self._pipelines.items() if pipeline.users)
        if len(used) >= _MAX_SIZES_IN_USE:
            raise ServerUnavailableError(
                f"{self.spec.name!r} cannot serve batches of {slots}: {len(used)} sizes are in use "
                f"({', '.join(map(str, used))}), the maximum; use one of them, or another server",
                pipeline=self.spec.name,
                batch_size=slots,
            )


class IndexedSession(Session):
    """One stream."""

    def __init__(
        self,
        engine: IndexedEngine,
        plan: IndexedPlan,
        quota: StreamQuota,
        trainer: Trainer,
        slots: int,
    ) -> None:
        super().__init__(quota)
        self._shared = engine.shared
        self.plan = plan
        self._order: RunOrder | None = None
        self._run: RunKey | None = None
        """The seed and the segments of that order."""
        try:
            self._pipeline = engine.pipeline(slots)
        except BaseException:
            quota.close()
            raise
        self._reader = engine.shared.open(trainer, slots)

    def submit(self, request: Request) -> Future[Answer]:
        if self._order is None or self._run != request.run:
            self._order, self._run = self.plan.order(*request.run), request.run
        task = BatchTask(request, self._order, self._quota, self._reader)
        try:
            self._order.require(request.start, request.count)
        except InfeedError as error:
            task.future.set_exception(error)
            return task.future
        return self._pipeline.submit(task)

    def on_sent(self) -> None:
        self._quota.release()
        self._pipeline.queue.wake()

    def close(self) -> None:
        self._pipeline.remove_user(self._quota)
        self._shared.close(self._reader)
