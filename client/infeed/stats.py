"""Statistics of a feed, with a verdict: whether the input limits the training job, and why."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from infeed.shared.report import ServerReport, TrainerReport, merge_processes
from infeed.shared.verdict import Verdict, judge

STARVED_THRESHOLD_SECONDS = 0.001
"""Seconds of waiting for a batch from which a step counts as starved."""

_MAX_WAITS = 10_000
"""Number of waits that the quantiles cover: more reach further into the past."""

_SUMS = ("steps", "samples", "starved_steps", "bytes", "reconnects", "left_out", "hedges")
"""Fields of `Stats` that add up over several feeds."""


@dataclass(frozen=True)
class Stats:
    """The statistics of a feed so far."""

    steps: int
    """Batches delivered to the training loop."""
    samples: int
    """Samples in them, without empty slots."""
    first_batch_seconds: float
    """Wait for the first batch: the start-up time. No other number includes it."""
    wait_p50_seconds: float
    """Median wait for a batch, over the last 10,000."""
    wait_p99_seconds: float
    """99th percentile of the same waits."""
    wait_max_seconds: float
    """Longest wait for a batch."""
    wait_share: float
    """Share of the time from the first batch to the last that the trainer spent waiting, 0 to 1."""
    starved_steps: int
    """Steps that waited for more than 1 ms."""
    bytes: int
    """Bytes of the batches on the wire."""
    bytes_per_second: float
    """Bytes on the wire per second, from the first batch to the last."""
    samples_per_second: float
    """Samples per second, from the first batch to the last."""
    seconds: float = 0.0
    """Time from the first batch to the last."""
    waits: tuple[float, ...] = field(default=(), repr=False)
    """The last 10,000 waits for a batch."""
    reconnects: int = 0
    """Lost connections that were restored."""
    left_out: int = 0
    """How often a server that could be reached was left out because it failed."""
    hedges: int = 0
    """Batches requested again from a faster server or connection."""
    prefetched_bytes: int = 0
    """Bytes of the batches buffered now, as on the wire."""
    prefetch_limit_bytes: int = 0
    """Bound on the bytes of the batches buffered and in flight."""
    servers: tuple[str, ...] = ()
    """Addresses of the servers connected so far."""
    batch_rates: Mapping[str, float] = field(default_factory=dict)
    """Batches per second of each open connection while requests are in flight, 0 before the first
    batch. `#2` is the second connection to a server."""
    shared_memory: Mapping[str, str] = field(default_factory=dict)
    """For each server at a Unix socket, why all or most of its batches are not in shared memory;
    empty if they are."""
    report: TrainerReport = field(default_factory=TrainerReport)
    """The feed's last seconds, as reported to its servers."""
    server_reports: Mapping[str, ServerReport] = field(default_factory=dict)
    """The last report of each server, by address."""
    lost_servers: tuple[str, ...] = ()
    """Addresses of the servers that no longer serve the feed: gone, or left out."""
    assessment: Verdict = field(default_factory=lambda: judge([], 1, []))
    """The verdict on the last seconds, in its parts."""

    def after(self, earlier: Stats) -> Stats:
        """Returns the statistics of this feed and of those before it, without the time between
        them."""
        waits = (*earlier.waits, *self.waits)[-_MAX_WAITS:]
        p50, p99 = _quantiles(waits)
        seconds = earlier.seconds + self.seconds
        waited = earlier.wait_share * earlier.seconds + self.wait_share * self.seconds
        per_second = 1 / (seconds or 1.0)
        bytes_sum = earlier.bytes_per_second * earlier.seconds + self.bytes
        sample_sum = earlier.samples_per_second * earlier.seconds + self.samples
        sums = {name: getattr(earlier, name) + getattr(self, name) for name in _SUMS}
        return replace(
            self,
            **sums,
            first_batch_seconds=earlier.first_batch_seconds,
            wait_p50_seconds=p50,
            wait_p99_seconds=p99,
            wait_max_seconds=max(earlier.wait_max_seconds, self.wait_max_seconds),
            wait_share=waited * per_second,
            bytes_per_second=bytes_sum * per_second,
            samples_per_second=sample_sum * per_second,
            seconds=seconds,
            waits=waits,
            servers=tuple(dict.fromkeys([*earlier.servers, *self.servers])),
        )

    @property
    def verdict(self) -> str:
        """One line: whether the input limits the training job, which part of it, and what helps."""
        return str(self.assessment)

    def __str__(self) -> str:
        waits = (self.wait_p50_seconds, self.wait_p99_seconds, self.wait_max_seconds)
        p50, p99, longest = (_format_seconds(wait) for wait in waits)
        shared = {server for server, reason in self.shared_memory.items() if not reason}
        notes = dict.fromkeys(shared, " in shared memory")
        notes |= dict.fromkeys(self.lost_servers, " (lost)")
        names = (f"{name}{notes.get(name, '')}" for name in self.servers)
        servers = ", ".join(names) or "no server"
        plural = "" if self.reconnects == 1 else "s"
        hedged = f", {self.hedges} hedged" if self.hedges else ""
        left_out = f", servers left out {self.left_out} x" if self.left_out else ""
        lines = (
            f"{self.verdict}",
            f"{self.steps} steps, {self.samples} samples",
            f"{self.samples_per_second:.0f} samples/s, {self.bytes_per_second / 1e6:.1f} MB/s",
            f"first batch after {_format_seconds(self.first_batch_seconds)}",
            f"then waits of p50 {p50}, p99 {p99}, max {longest}",
            f"{self.reconnects} reconnect{plural}{hedged}{left_out}, served by {servers}",
            *self._rates(),
            *self._saved(),
            *(
                f"batches of {server} are copied: {reason}"
                for server, reason in self.shared_memory.items()
                if reason
            ),
        )
        return "\n  ".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Shows the summary in a notebook, instead of every field on one line."""
        printer.text("..." if cycle else str(self))

    def _rates(self) -> list[str]:
        """Returns a line with each connection's batches per second, if there are several."""
        rates = ", ".join(f"{name} {rate:.3g}" for name, rate in self.batch_rates.items())
        return [f"batches/s by connection: {rates}"] * (len(self.batch_rates) > 1)

    def _saved(self) -> list[str]:
        """Returns a line about work the servers were spared in their last seconds."""
        if not self.server_reports:
            return []
        report = merge_processes(self.server_reports.values())
        shared, cached = report.shared_share, report.cached_share
        parts = [f"{shared:.0%} of samples shared with other trainers"] * bool(shared)
        parts += [f"{cached:.0%} of samples from the cache"] * bool(cached)
        return [", ".join(parts)] * bool(parts)


@dataclass(frozen=True)
class Progress:
    """Totals over the batches taken from a feed."""

    steps: int = 0
    samples: int = 0
    bytes: int = 0
    """Bytes on the wire."""

    def plus(self, samples: int, payload_bytes: int) -> Progress:
        return Progress(self.steps + 1, self.samples + samples, self.bytes + payload_bytes)


class StatsRecorder:
    """Records the wait for each batch, in constant memory and without a lock: an interrupt or a
    second thread can falsify one wait, but no total."""

    def __init__(self) -> None:
        self._last = Progress()
        """The progress after the batch recorded last."""
        self._first = Progress()
        self._first_wait = self._first_at = 0.0
        self.last_at = 0.0
        """The monotonic time of the last batch."""
        self._waited = self._longest = 0.0
        self._starved = 0
        self.waiting_since: float | None = None
        """The monotonic time at which the current wait began, if the trainer is waiting."""
        self._waits: deque[float] = deque(maxlen=_MAX_WAITS)
        self.earlier: Stats | None = None
        """The statistics of feeds before this one that `stats` includes: then the wait for its
        first batch is one like the others."""

    def record(self, requested_at: float, received_at: float, progress: Progress) -> None:
        """Records the wait for one batch, once, and the progress after it."""
        self.waiting_since = None
        if progress.steps <= self._last.steps:
            return
        self._last = progress
        wait = received_at - requested_at
        self.last_at = received_at
        if progress.steps == 1:
            if self.earlier is None:
                self._first_at, self._first_wait, self._first = received_at, wait, progress
                return
            self._first_at = requested_at
        self._waited += wait
        self._longest = max(self._longest, wait)
        self._starved += wait > STARVED_THRESHOLD_SECONDS
        self._waits.append(wait)

    @property
    def first_at(self) -> float | None:
        """The monotonic time from which on steps and waits are counted, once there is a batch."""
        return self._first_at if self._last.steps else None

    def counters(self, now: float) -> dict[str, float]:
        """Returns the steps and waits since `first_at`, with the current wait."""
        since = self.waiting_since
        waiting = 0.0 if since is None or not self._last.steps else max(0.0, now - since)
        return {
            "steps": self._last.steps - self._first.steps,
            "wait_seconds": self._waited + waiting,
            "starved_steps": self._starved,
        }

    def stats(self, progress: Progress, **others: Any) -> Stats:
        """Returns the statistics so far, completed with `others`."""
        span = self.last_at - self._first_at
        first = self._first if span else progress
        waits = tuple(self._waits.copy())  # copying is atomic on free-threaded Python too
        p50, p99 = _quantiles(waits)
        own = Stats(
            steps=progress.steps,
            samples=progress.samples,
            first_batch_seconds=self._first_wait,
            wait_p50_seconds=p50,
            wait_p99_seconds=p99,
            wait_max_seconds=self._longest,
            wait_share=self._waited / span if span else 0.0,
            starved_steps=self._starved,
            bytes=progress.bytes,
            bytes_per_second=(progress.bytes - first.bytes) / (span or 1.0),
            samples_per_second=(progress.samples - first.samples) / (span or 1.0),
            seconds=span,
            waits=waits,
            **others,
        )
        return own if self.earlier is None else own.after(self.earlier)


def _quantiles(waits: Sequence[float]) -> list[float]:
    """Returns the median and the 99th percentile."""
    quantiles: list[float] = np.quantile(waits or [0.0], [0.5, 0.99]).tolist()
    return quantiles


def _format_seconds(value: float) -> str:
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
