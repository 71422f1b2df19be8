"""Observer: what this process knows about its last seconds, its pipelines and its trainers."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

from infeed.shared.spec import PipelineSpec
from infeed_observe.jobs import Jobs
from infeed_observe.metrics import Metrics
from infeed_observe.pipeline_reports import PipelineReports
from infeed_observe.status import Status
from infeed_observe.views import Document, PipelineView, ProcessView
from infeed_server.engines.base import Engine
from infeed_server.engines.capabilities import RandomAccess
from infeed_server.runtime.instruments import Facts
from infeed_server.serving.health import Readiness
from infeed_server.version import VERSION

_MAX_CLASSES = 3
"""Classes of a field that the status names."""

QUEUES = {
    "queued_requests": "Requests waiting for their batch.",
    "unsent_batches": "Batches in progress, and finished ones not sent yet.",
    "unsent_bytes": "Encoded size of the unsent batches.",
    "window_bytes": "Bytes of batches kept for slower trainers.",
    "cache_bytes": "Bytes of the samples in the pipeline's cache.",
}
"""Contents of an engine, in the status and the metrics."""


class Observer:
    """Observes the pipelines and trainers of a process. `update` is called every second."""

    def __init__(
        self, facts: Facts, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.facts = facts
        self.metrics = metrics
        self._clock = clock
        self._started_at = clock()
        self._peak_bytes = 0
        self.reports = PipelineReports(clock)
        self.jobs = Jobs(self.reports.report, clock)
        self.status = Status(clock)
        facts.health.subscribe(lambda name, _: metrics.add_pipeline(name) if name else None)

    def engines(self) -> dict[str, Engine]:
        """Returns the engines of the open pipelines, and begins their reports."""
        engines = dict(self.facts.engines)
        for name, engine in engines.items():
            spec = engine.spec
            is_sequential = not spec.is_remote and not spec.guarantee.has_random_access
            self.reports.watch(name, engine, is_sequential=is_sequential)
        return engines

    def update(self) -> None:
        """Renews all reports and the status."""
        engines, totals = self.engines(), self.metrics.totals()
        self.reports.update(totals)
        self.jobs.drop_old_reports()
        self.status.update(self._view(engines, totals))

    def to_json(self, readiness: Mapping[str, Readiness]) -> Document:
        """Returns the document of `/api/v1/status`."""
        return self.status.to_json(self._view(self.engines(), self.metrics.totals()), readiness)

    def bad_samples(self, pipeline: str) -> list[Document] | None:
        """Returns the last bad samples of a pipeline, newest first; None if it does not exist."""
        engine = self.facts.engines.get(pipeline)
        return engine.bad_samples() if isinstance(engine, RandomAccess) else None

    def _view(
        self, engines: Mapping[str, Engine], totals: Mapping[str, dict[str, float]]
    ) -> ProcessView:
        process, refused = self.reports.process, self.facts.refused.last
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        self._peak_bytes = max(self._peak_bytes, own, process.memory_bytes)
        pipelines = [
            PipelineView(
                name,
                _spec_json(engine.spec),
                self.reports.report(name),
                self.jobs.views(name),
                totals[name],
                vars(refused[name]) if name in refused else None,
                queues(engine),
            )
            for name, engine in engines.items()
        ]
        server = {
            "version": VERSION,
            "uptime_seconds": self._clock() - self._started_at,
            "cores": process.cores,
            "cpu_share": max((part.report.cpu_share for part in pipelines), default=0.0),
            "memory_bytes": process.memory_bytes,
            "peak_memory_bytes": self._peak_bytes,
            "memory_limit_bytes": process.memory_limit_bytes,
        }
        return ProcessView(server, pipelines, dict(self.facts.health.broken))


def queues(engine: Engine) -> dict[str, float]:
    """Returns the contents of an engine, by the names of `QUEUES`."""
    figures, budget, name = engine.figures(), engine.budget, engine.spec.name
    unsent = {
        "unsent_batches": budget.held_batches(name),
        "unsent_bytes": budget.held_bytes(name),
    }
    return {queue: unsent.get(queue, getattr(figures, queue, 0)) for queue in QUEUES}


def _spec_json(spec: PipelineSpec) -> dict[str, Any]:
    names = ("fingerprint", "batch_size", "sample_count", "seed", "engine")
    return {
        **{name: getattr(spec, name) for name in names},
        "guarantee": str(spec.guarantee),
        "classes": {
            name: {"count": len(names), "first": names[:_MAX_CLASSES]}
            for name, names in spec.classes.items()
        },
        "element_spec": [str(field) for field in spec.element_spec],
        "wire_spec": [str(field) for field in spec.wire_spec],
        "finish_transforms": [type(transform).__name__ for transform in spec.finish_transforms],
    }
