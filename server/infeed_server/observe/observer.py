"""Observer: what this process knows of its last seconds, its pipelines and its trainers."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

from infeed.shared.report import ServerReport
from infeed.shared.spec import PipelineSpec
from infeed_server.engines.base import Engine
from infeed_server.observe.jobs import Jobs
from infeed_server.observe.metrics import LabelledValues, Metrics
from infeed_server.observe.pipeline_reports import PipelineReports
from infeed_server.observe.status import Document, Status

UPDATE_INTERVAL_SECONDS = 1.0
"""Seconds: a longer interval makes figures older, a shorter one costs more."""

_QUEUES = ("queued_requests", "unsent_batches", "unsent_bytes", "window_bytes")
"""Methods of an engine, which are figures of the status and metrics."""


class Observer:
    """Observes the pipelines and trainers of a process. `update` is called every second."""

    def __init__(
        self,
        version: str,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = metrics
        self._version = version
        self._clock = clock
        self._started_at = clock()
        self._reports = PipelineReports(clock)
        self.jobs = Jobs(self._reports.report, clock)
        self.status = Status(self, clock, unix_time)
        self._engines: dict[str, Engine] = {}
        self._totals: dict[str, dict[str, float]] = {}
        metrics.read({f"infeed_{name}": self._queue_reader(name) for name in _QUEUES})
        metrics.read(
            {
                "infeed_trainers": lambda: _labelled(self.status.trainers),
                "infeed_wait_ratio": lambda: _labelled(self.status.wait_shares),
                "infeed_desired_servers": lambda: {(): self.status.desired_servers},
                "infeed_pipeline_state_seconds": self._state_seconds,
            }
        )

    def watch(self, name: str, engine: Engine) -> None:
        """Begins to observe a pipeline."""
        spec = engine.spec
        is_sequential = not spec.is_remote and spec.guarantee.resume != "constant_time"
        self.metrics.add_pipeline(name)
        self._reports.watch(
            name, engine.state_seconds, engine.python_work, is_sequential=is_sequential
        )
        self._engines[name] = engine

    def report(self, pipeline: str) -> ServerReport:
        """Returns the last seconds of a pipeline."""
        return self._reports.report(pipeline)

    def update(self) -> None:
        """Renews all reports, and the status."""
        self._reports.update(self.metrics.totals())
        self.jobs.drop_old_reports()
        self.status.update()

    def documents(self) -> list[Document]:
        """Returns what this process knows of itself, for the status."""
        process = self._reports.process
        totals = self.metrics.totals()
        shares = (self.report(name).cpu_share for name in self._engines)
        server = {
            "version": self._version,
            "uptime_seconds": self._clock() - self._started_at,
            "cores": process.cores,
            "cpu_share": max(shares, default=0.0),
            "memory_bytes": process.memory_bytes,
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            "memory_limit_bytes": process.memory_limit_bytes,
        }
        pipelines = [
            {
                "name": name,
                **_spec_json(engine.spec),
                "report": self.report(name).to_json(),
                "totals": totals[name],
                "source_error": self.metrics.source_errors.last(name),
                "queues": {queue: getattr(engine, queue)() for queue in _QUEUES},
                "jobs": self.jobs.to_json(name),
            }
            for name, engine in list(self._engines.items())
        ]
        return [{"server": server, "pipelines": pipelines}]

    def bad_samples(self, pipeline: str) -> list[list[Document]]:
        """Returns the last bad samples of a pipeline in a list, which is empty without it."""
        engine = self._engines.get(pipeline)
        return [] if engine is None else [engine.bad_samples()]

    def _queue_reader(self, queue: str) -> Callable[[], LabelledValues]:
        return lambda: {
            (name,): getattr(engine, queue)() for name, engine in list(self._engines.items())
        }

    def _state_seconds(self) -> LabelledValues:
        return {
            (name, state): seconds
            for name, engine in list(self._engines.items())
            for state, seconds in engine.state_seconds().items()
        }


def _labelled(values: dict[str, Any]) -> LabelledValues:
    """Returns the values that are known, by their label."""
    return {(name,): value for name, value in values.items() if value is not None}


def _spec_json(spec: PipelineSpec) -> dict[str, Any]:
    return {
        "fingerprint": spec.fingerprint,
        "batch_size": spec.batch_size,
        "sample_count": spec.sample_count,
        "seed": spec.seed,
        "engine": spec.engine,
        "guarantee": str(spec.guarantee),
        "element_spec": [str(field) for field in spec.element_spec],
        "wire_spec": [str(field) for field in spec.wire_spec],
        "finish_transforms": [type(transform).__name__ for transform in spec.finish_transforms],
    }
