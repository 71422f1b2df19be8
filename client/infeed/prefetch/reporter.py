"""Reporter: what a feed reports to its servers, and what they have answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infeed.shared.report import ServerReport, TrainerReport
from infeed.shared.sliding_window import SlidingWindow
from infeed.stats import StatsRecorder


@dataclass
class ThreadMeter:
    """Totals of one thread for `TrainerReport`; only that thread writes them."""

    receive_seconds: float = 0.0
    finish_seconds: float = 0.0
    bytes: int = 0
    cpu_seconds: float = 0.0

    def update_cpu(self) -> None:
        """Reads the processor time of the calling thread."""
        self.cpu_seconds = time.thread_time()


class Reporter:
    """Keeps the last seconds of a feed, and the last report of each server. Thread-safe."""

    def __init__(self, recorder: StatsRecorder, state: Callable[[], dict[str, Any]]) -> None:
        """`state` returns the figures of a report that are not sums."""
        self._recorder = recorder
        self._state = state
        self._meters: list[ThreadMeter] = []
        self._window = SlidingWindow("steps")
        self._servers: dict[str, ServerReport] = {}
        self._lock = threading.Lock()

    def new_meter(self) -> ThreadMeter:
        """Returns a meter for another thread of the feed."""
        self._meters.append(ThreadMeter())
        return self._meters[-1]

    def sample(self) -> None:
        """Keeps a sample of the counters; called several times a second."""
        if (first_at := self._recorder.first_at) is None:
            return
        now = time.monotonic()
        with self._lock:
            counters = self._counters(now)
            if self._window.is_empty:
                begun = counters if self._recorder.earlier else self._recorder.counters(now)
                self._window.sample(first_at, {**counters, **dict.fromkeys(begun, 0)})
            self._window.sample(now, counters)

    def report(self, *, has_ended: bool = False) -> TrainerReport:
        """Returns the report of the last seconds: up to the last batch, if the feed has ended."""
        if self._window.is_empty:  # a feed can receive all of its batches before the first is taken
            self.sample()
        now = self._recorder.last_at if has_ended else time.monotonic()
        with self._lock:
            seconds, grown = self._window.difference(now, self._counters(now))
        figures: dict[str, Any] = {}
        if seconds:
            figures = {**grown, "wait_seconds": min(seconds, grown["wait_seconds"])}
        return TrainerReport(seconds=seconds, **figures, **self._state())

    def on_server_report(self, server: str, report: ServerReport) -> None:
        """Keeps the last report of a server."""
        with self._lock:
            self._servers[server] = report

    def server_reports(self) -> Mapping[str, ServerReport]:
        """Returns the last report of each server, by its address."""
        with self._lock:
            return dict(self._servers)

    def _counters(self, now: float) -> dict[str, float]:
        meters = tuple(self._meters)  # another thread may add one
        sums = {name: sum(vars(meter)[name] for meter in meters) for name in vars(ThreadMeter())}
        return {**sums, **self._recorder.counters(now)}
