"""Pipeline reports: the last seconds of each pipeline of this server, renewed every second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from infeed.report import ServerReport
from infeed.sliding_window import SlidingWindow
from infeed_server.engines import cgroup
from infeed_server.engines.state_clock import STATES, StateSeconds
from infeed_server.observe.cpu import cpu_seconds
from infeed_server.observe.totals import Totals

_TIMES = ("encode_seconds", "send_seconds", "cpu_seconds")


class PipelineReports:
    """The last report of each pipeline. `update` is called every second. Thread-safe."""

    def __init__(
        self,
        totals: Totals,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = cpu_seconds,
    ) -> None:
        self._totals = totals
        self._clock = clock
        self._cpu = cpu
        self._states: dict[str, Callable[[], StateSeconds]] = {}
        self._windows: dict[str, SlidingWindow] = {}
        self._reports: dict[str, ServerReport] = {}
        self._lock = threading.Lock()

    def watch(self, pipeline: str, states: Callable[[], StateSeconds]) -> None:
        """Begins to report on a pipeline, whose time in each state `states` returns."""
        with self._lock:
            self._states[pipeline] = states
            self._windows[pipeline] = SlidingWindow()
            self._reports[pipeline] = ServerReport(cores=cgroup.cpu_count())

    def update(self) -> None:
        """Makes the report of each pipeline."""
        now, cpu = self._clock(), self._cpu()
        with self._lock:
            for name, window in self._windows.items():
                counters = {**self._counters(name), "cpu_seconds": cpu}
                window.sample(now, counters)
                self._reports[name] = _report(*window.difference(now, counters))

    def report(self, pipeline: str) -> ServerReport:
        """Returns the last seconds of a pipeline, as of the last `update`."""
        return self._reports[pipeline]

    def _counters(self, pipeline: str) -> dict[str, float]:
        states = {f"{state}_seconds": value for state, value in self._states[pipeline]().items()}
        return {**self._totals.counters(pipeline), **states}


def _report(seconds: float, grown: Mapping[str, float]) -> ServerReport:
    times: dict[str, Any] = {name: max(0.0, grown.get(name, 0.0)) for name in _TIMES}
    return ServerReport(
        seconds=seconds,
        batches=int(grown["batches"]),
        bytes=int(grown["bytes"]),
        cores=cgroup.cpu_count(),
        **_state_seconds(seconds, grown),
        **times,
    )


def _state_seconds(seconds: float, grown: Mapping[str, float]) -> dict[str, Any]:
    """Returns the time in each state, of several batch sizes together, which add up to `seconds`.

    While one of them works, the pipeline has a request, whatever the others wait for.
    """
    active = {f"{state}_seconds": max(0.0, grown[f"{state}_seconds"]) for state in STATES}
    del active["no_request_seconds"]
    total = sum(active.values())
    scale = seconds / total if total > seconds else 1.0
    active = {name: value * scale for name, value in active.items()}
    return {"no_request_seconds": max(0.0, seconds - sum(active.values())), **active}
