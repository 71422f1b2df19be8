"""Observer: all that is known of a server's last seconds, and its document for `/api/v1`."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from infeed.shared.capacity import consumption
from infeed.shared.report import ServerReport
from infeed.shared.spec import PipelineSpec
from infeed.shared.verdict import judge
from infeed_server.engines.base import Engine
from infeed_server.observe.desired_servers import DesiredServers, enough_in_use
from infeed_server.observe.history import History
from infeed_server.observe.jobs import (
    ConnectedTrainer,
    Jobs,
    by_job,
    rank_reports,
    worst_wait,
)
from infeed_server.observe.pipeline_reports import PipelineReports
from infeed_server.observe.totals import Totals

UPDATE_INTERVAL_SECONDS = 1.0

_COUNTERS = ("batches", "samples", "bytes")


class Observer:
    """Observes the pipelines and trainers of a server. `update` is called every second."""

    def __init__(
        self,
        version: str,
        clock: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self.totals = Totals()
        self._version = version
        self._clock = clock
        self._unix_time = unix_time
        self._started_at = clock()
        self._reports = PipelineReports(self.totals, clock)
        self.jobs = Jobs(self._reports.report, clock)
        self.history = History()
        self._engines: dict[str, Engine] = {}
        self._desired = DesiredServers()
        self._last: tuple[float, dict[str, dict[str, float]]] = (self._started_at, {})

    def watch(self, name: str, engine: Engine) -> None:
        """Begins to observe a pipeline."""
        spec = engine.spec
        is_sequential = not spec.is_remote and spec.guarantee.resume != "constant_time"
        self._reports.watch(
            name, engine.state_seconds, engine.python_work, is_sequential=is_sequential
        )
        self._engines[name] = engine

    def report(self, pipeline: str) -> ServerReport:
        """Returns the last seconds of a pipeline."""
        return self._reports.report(pipeline)

    def update(self) -> None:
        """Renews all reports and adds a point to the history."""
        self._reports.update()
        now, (before_at, before) = self._clock(), self._last
        totals = {name: self.totals.counters(name) for name in self._engines}
        seconds = max(1e-3, now - before_at)
        self._last = now, totals
        self.jobs.drop_old_reports()
        trainers = self.jobs.trainers()
        reports = {name: self.report(name) for name in self._engines}
        self._desired.update(now, _demands(trainers), reports, self._enough_in_use(trainers))
        points: dict[str, dict[str, float | None]] = {}
        for name, counters in totals.items():
            old = before.get(name, {})  # at first, all since the start
            rates = {
                f"{key}_per_second": (counters[key] - old.get(key, 0)) / seconds
                for key in _COUNTERS
            }
            points[name] = {**rates, "wait_share": worst_wait(name, trainers)}
        self.history.add(self._unix_time(), points)

    def to_json(
        self,
        readiness: Mapping[str, tuple[bool, str]],
        visible: Callable[[str], bool] = lambda _: True,
    ) -> dict[str, Any]:
        """Returns the document of `/api/v1/status`.

        `readiness` has, by pipeline and under "" for the server, whether it is ready, and why.
        `visible` says whether the reader may see a pipeline.
        """
        names = [name for name in self._engines if visible(name)]
        pipelines = [self._pipeline_json(name, readiness.get(name, (False, ""))) for name in names]
        ready, reason = readiness.get("", (False, ""))
        process = self._reports.process
        return {
            "server": {
                "version": self._version,
                "ready": ready,
                "reason": reason,
                "uptime_seconds": self._clock() - self._started_at,
                "cores": process.cores,
                "cpu_share": max((self.report(name).cpu_share for name in names), default=0.0),
                "memory_bytes": process.memory_bytes,
                "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
                "memory_limit_bytes": process.memory_limit_bytes,
                "desired_servers": self.desired_servers,
            },
            "verdict": worst_verdict(pipelines),
            "pipelines": pipelines,
        }

    def bad_samples(self, pipeline: str) -> list[dict[str, Any]] | None:
        """Returns the last bad samples of a pipeline; None if there is no such pipeline."""
        engine = self._engines.get(pipeline)
        return None if engine is None else engine.bad_samples()

    @property
    def desired_servers(self) -> int:
        """Servers like this one that would feed all connected trainers without waits."""
        return self._desired.value

    @property
    def pipelines(self) -> Mapping[str, Engine]:
        """The engines by name."""
        return self._engines

    def _enough_in_use(self, trainers: list[ConnectedTrainer]) -> int | None:
        return enough_in_use(
            (rank_reports(each), each[0].job.world_size, self.jobs.verdict(each))
            for each in by_job(trainers)
        )

    def _pipeline_json(self, name: str, readiness: tuple[bool, str]) -> dict[str, Any]:
        engine, report = self._engines[name], self.report(name)
        ready, reason = readiness
        return {
            "name": name,
            "ready": ready,
            "reason": reason,
            **_spec_json(engine.spec),
            "report": {**report.to_json(), "cpu_share": report.cpu_share},
            "totals": self.totals.counters(name),
            "source_error": self.totals.source_errors.last(name),
            "queues": {
                "queued_requests": engine.queued_requests(),
                "unsent_batches": engine.unsent_batches(),
                "unsent_bytes": engine.unsent_bytes(),
                "window_bytes": engine.window_bytes(),
            },
            "jobs": self.jobs.to_json(name),
        }


def worst_verdict(pipelines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the verdict on the job that waits most: the very one that its job has.

    Reports may change between two verdicts on the same job.
    """
    verdicts = [job["verdict"] for pipeline in pipelines for job in pipeline["jobs"]]
    known = [each for each in verdicts if each["level"] != "unknown"]
    nothing = judge([], 1, []).to_json()
    return max(known or verdicts, key=lambda each: each["wait_share"], default=nothing)


def _demands(trainers: list[ConnectedTrainer]) -> dict[str, float]:
    """Returns by pipeline the batches per second that all jobs would take without waits."""
    demands: dict[str, float] = {}
    for streams in by_job(trainers):
        job = streams[0].job
        demand = consumption(rank_reports(streams), job.world_size)
        if math.isfinite(demand):
            demands[job.pipeline] = demands.get(job.pipeline, 0.0) + demand
    return demands


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
        "finish_transforms": [type(each).__name__ for each in spec.finish_transforms],
    }
