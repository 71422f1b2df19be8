"""Observer: what this process knows of its last seconds, its pipelines and its trainers."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from infeed.shared.spec import PipelineSpec
from infeed_server.engines.base import Engine
from infeed_server.engines.capabilities import RandomAccess
from infeed_server.observe.callback_metrics import LabelledValues
from infeed_server.observe.jobs import Jobs
from infeed_server.observe.metrics import Metrics
from infeed_server.observe.pipeline_reports import PipelineReports
from infeed_server.observe.status import Document, Status
from infeed_server.storage.stores import traffic

UPDATE_INTERVAL_SECONDS = 1.0
"""Seconds: a longer interval makes figures older, a shorter one costs more."""

_MAX_CLASSES = 3
"""Classes of a field whose names the status has."""

_QUEUES = ("queued_requests", "unsent_batches", "unsent_bytes", "window_bytes", "cache_bytes")
"""What an engine holds, for the status and metrics."""


class Observer:
    """Observes the pipelines and trainers of a process. `update` is called every second."""

    def __init__(
        self,
        version: str,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        *,
        broken: Mapping[str, str] | None = None,
    ) -> None:
        """`broken` has the pipelines that are not served, and why."""
        self.metrics = metrics
        self._broken = {} if broken is None else broken
        self._version = version
        self._clock = clock
        self._started_at = clock()
        self._peak_bytes = 0
        self._totals: dict[str, dict[str, float]] | None = None
        """During an `update`, which takes them once."""
        self._reports = PipelineReports(clock)
        self.jobs = Jobs(self._reports.report, clock)
        self.status = status = Status(self, clock)
        self._engines: dict[str, Engine] = {}
        metrics.read(
            {
                **{f"infeed_{name}": partial(self._queue, name) for name in _QUEUES},
                "infeed_trainers": lambda: _labelled(status.trainers),
                "infeed_wait_ratio": lambda: _labelled(status.wait_shares),
                "infeed_desired_servers": lambda: {(): status.desired_servers},
                "infeed_pipeline_state_seconds": self._state_seconds,
                "infeed_requested_samples": partial(self._sample_counts, is_cache=False),
                "infeed_cache_reads": partial(self._sample_counts, is_cache=True),
                "infeed_pictures": self._pictures,
                "infeed_memory_limit_bytes": lambda: {(): self._reports.process.memory_limit_bytes},
                "infeed_store_requests": lambda: {(): traffic()[0]},
                "infeed_store_received_bytes": lambda: {(): traffic()[1]},
            }
        )

    def watch(self, name: str, engine: Engine) -> None:
        """Begins to observe a pipeline."""
        spec = engine.spec
        is_sequential = not spec.is_remote and not spec.guarantee.has_random_access
        self.metrics.add_pipeline(name)
        self._reports.watch(name, engine, is_sequential=is_sequential)
        self._engines[name] = engine

    def update(self) -> None:
        """Renews all reports, and the status."""
        self._reports.update(totals := self.metrics.totals())
        self.jobs.drop_old_reports()
        self._totals = totals
        try:
            self.status.update()
        finally:
            self._totals = None

    def documents(self) -> list[Document]:
        """Returns what this process knows of itself, for the status."""
        process, totals = self._reports.process, self._totals or self.metrics.totals()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        self._peak_bytes = max(self._peak_bytes, own, process.memory_bytes)
        pipelines = [
            {
                "name": name,
                **_spec_json(engine.spec),
                "report": self._reports.report(name).to_json(),
                "totals": totals[name],
                "source_error": self.metrics.source_errors.get(name),
                "queues": _queues(engine),
                "jobs": self.jobs.to_json(name),
            }
            for name, engine in list(self._engines.items())
        ]
        shares = (self._reports.report(name).cpu_share for name in list(self._engines))
        server = {
            "version": self._version,
            "uptime_seconds": self._clock() - self._started_at,
            "cores": process.cores,
            "cpu_share": max(shares, default=0.0),
            "memory_bytes": process.memory_bytes,
            "peak_memory_bytes": self._peak_bytes,
            "memory_limit_bytes": process.memory_limit_bytes,
        }
        return [{"server": server, "pipelines": pipelines, "broken": dict(self._broken)}]

    def bad_samples(self, pipeline: str) -> list[list[Document]]:
        """Returns the last bad samples of a pipeline in a list, which is empty without it."""
        engine = self._engines.get(pipeline)
        return [engine.bad_samples()] if isinstance(engine, RandomAccess) else []

    def _queue(self, queue: str) -> LabelledValues:
        return {(name,): _queues(engine)[queue] for name, engine in list(self._engines.items())}

    def _state_seconds(self) -> LabelledValues:
        return {
            (name, state): seconds
            for name, engine in list(self._engines.items())
            for state, seconds in engine.figures().state_seconds.items()
        }

    def _sample_counts(self, *, is_cache: bool) -> LabelledValues:
        """Returns the counts of the cache, by result, or the others, by origin."""
        return {
            (name, count.removeprefix("cache_").removesuffix("_samples")): value
            for name, engine in list(self._engines.items())
            for count, value in engine.figures().sample_counts.items()
            if count.startswith("cache_") == is_cache
        }

    def _pictures(self) -> LabelledValues:
        return {
            (name, decoder): count
            for name, engine in list(self._engines.items())
            for decoder, count in engine.figures().pictures.items()
        }


def _queues(engine: Engine) -> dict[str, int]:
    figures, budget, name = engine.figures(), engine.budget, engine.spec.name
    unsent = {
        "unsent_batches": budget.held_batches(name),
        "unsent_bytes": budget.held_bytes(name),
    }
    return {queue: unsent.get(queue, getattr(figures, queue, 0)) for queue in _QUEUES}


def _labelled(values: Mapping[str, float | None]) -> LabelledValues:
    """Returns the values that are known, by their label."""
    return {(name,): value for name, value in values.items() if value is not None}


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
