"""Pipeline reports: the last seconds of each of this server's pipelines, renewed every second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from infeed.shared.report import SAMPLE_COUNTS, ServerReport
from infeed.shared.sliding_window import WINDOW_SECONDS, SlidingWindow
from infeed_observe import usage
from infeed_server.engines.base import Engine
from infeed_server.engines.state_clock import STATES
from infeed_server.processes import cgroup

_COUNTS = ("batches", "bytes", "python_samples", *SAMPLE_COUNTS)
_TIMES = ("encode_seconds", "send_seconds", "cpu_seconds", "python_seconds")

_MIN_CORES = 0.01
"""Cores available to a server whose host is fully used by others; 0 would mean unknown."""


@dataclass
class _Pipeline:
    """One pipeline: its engine, its last report, and its counters at the last `update`."""

    engine: Engine
    report: ServerReport
    counters: dict[str, float] = field(default_factory=dict)
    window: SlidingWindow = field(default_factory=SlidingWindow)


class PipelineReports:
    """The last report of each pipeline. `update` is called every second. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.process = ServerReport(
            cores=cgroup.cpu_count(),
            memory_bytes=usage.resident_bytes(),
            memory_limit_bytes=cgroup.memory_bytes(),
            processes=cgroup.process_count(),
            process_id=os.getpid(),
        )
        self._updated_at = clock()
        self._pipelines: dict[str, _Pipeline] = {}
        self._lock = threading.Lock()

    def watch(
        self,
        pipeline: str,
        engine: Engine,
        *,
        is_sequential: bool = False,
    ) -> None:
        """Begins to report on a pipeline, unless it has begun before."""
        report = replace(self.process, is_sequential=is_sequential)
        with self._lock:
            self._pipelines.setdefault(pipeline, _Pipeline(engine, report))

    def update(self, totals: Mapping[str, Mapping[str, float]]) -> None:
        """Makes the report of each pipeline from its totals so far."""
        now, used = self._clock(), {"cpu_seconds": usage.cpu_seconds()}
        if (idle := usage.idle_seconds()) is not None:
            used["idle_seconds"] = idle
        self.process = replace(self.process, memory_bytes=usage.resident_bytes())
        with self._lock:
            self._updated_at = now
            for name, pipeline in self._pipelines.items():
                figures = pipeline.engine.figures()
                work, states = figures.python_work, figures.state_seconds
                times = {f"{state}_seconds": seconds for state, seconds in states.items()}
                python = {"python_seconds": work.seconds, "python_samples": work.samples}
                counts = {kind: figures.sample_counts.get(kind, 0) for kind in SAMPLE_COUNTS}
                pipeline.counters = {**totals[name], **times, **python, **counts, **used}
                pipeline.window.sample(now, pipeline.counters)
                pipeline.report = replace(
                    pipeline.report,
                    memory_bytes=self.process.memory_bytes,
                    python_workers=work.workers,
                    slowest_sample=work.slowest_sample,
                    slowest_sample_seconds=work.slowest_seconds,
                )
                pipeline.report = self._report(pipeline, WINDOW_SECONDS)

    def report(self, pipeline: str, seconds: float = WINDOW_SECONDS) -> ServerReport:
        """Returns the report on a pipeline's last ten seconds, or fewer, at the last `update`."""
        watched = self._pipelines[pipeline]
        if seconds >= watched.report.seconds:
            return watched.report
        with self._lock:
            return self._report(watched, seconds)

    def _report(self, pipeline: _Pipeline, seconds: float) -> ServerReport:
        """Returns the last report, with the counters' growth in the last `seconds`."""
        seconds, grown = pipeline.window.difference(self._updated_at, pipeline.counters, seconds)
        times: dict[str, Any] = {name: max(0.0, grown.get(name, 0.0)) for name in _TIMES}
        counts: dict[str, Any] = {name: int(grown[name]) for name in _COUNTS}
        report = replace(
            pipeline.report,
            seconds=seconds,
            **counts,
            **_state_seconds(seconds, grown),
            **times,
        )
        return replace(report, available_cores=_available(report, grown.get("idle_seconds")))


def _available(report: ServerReport, idle_seconds: float | None) -> float:
    """Returns the number of processors used by the server, plus its share of the idle ones."""
    if not report.seconds or idle_seconds is None:
        return 0.0
    used = report.cpu_seconds / report.seconds
    idle = max(0.0, idle_seconds) / report.seconds / report.processes
    return min(report.cores, max(_MIN_CORES, used + idle))


def _state_seconds(seconds: float, grown: Mapping[str, float]) -> dict[str, Any]:
    """Returns the time in each state for all batch sizes together, adding up to `seconds`. While
    one size is at work, the pipeline has a request, even if other sizes wait for one. The time of
    repairs also counts as time of the transforms."""
    active = {f"{state}_seconds": max(0.0, grown[f"{state}_seconds"]) for state in STATES}
    del active["no_request_seconds"]
    scale = min(1.0, seconds / max(sum(active.values()), 1e-9))
    active = {name: value * scale for name, value in active.items()}
    idle = max(0.0, seconds - sum(active.values()))
    active["transform_seconds"] += active["repair_seconds"]
    return {"no_request_seconds": idle, **active}
