"""Desired servers: how many servers like this one would feed all connected trainers without waits.

    Σ over pipelines: batches/s that the trainers would take ÷ batches/s that one server makes

Neither rate depends on the current number of servers or on other processes of the host, so an
autoscaler that follows the value reaches a fixed point instead of oscillating. If more servers
would help no job, the servers in use are enough. A job stops counting when its last rank leaves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from infeed.shared.capacity import MIN_BATCHES, capacity, servers_in_use
from infeed.shared.cause import HELPED_BY_SERVERS
from infeed.shared.report import RankReport, ServerReport
from infeed.shared.verdict import Verdict

UTILISATION = 0.85
"""Share of its capacity at which a server should run; the rest absorbs uneven load."""

_SMOOTHING_SECONDS = 30.0
"""Seconds: with fewer, noisy steps add servers; with more, servers are added later."""

_DOWN_SECONDS = 300.0
"""Seconds during which fewer servers must have been enough: with fewer, a job that pauses for a
checkpoint loses servers; with more, idle servers stay longer."""

_MAX_SERVERS = 1000.0
"""An upper limit, because the steps that trainers report are not verified."""

DESIRED_SERVERS = (
    "infeed_desired_servers",
    "Servers like this one that would feed all connected trainers without waits.",
)
"""Name and text of the metric."""

JobVerdict = tuple[Collection[RankReport], int, Verdict]
"""The reports of a job's ranks, its world size, and the verdict on it."""


def enough_in_use(jobs: Iterable[JobVerdict]) -> int | None:
    """Returns the number of servers in use if more would help no job; None otherwise."""
    most = 0
    for ranks, world_size, verdict in jobs:
        may_help = verdict.cause is None or verdict.cause in HELPED_BY_SERVERS
        if verdict.level == "unknown" or (verdict.is_input_bound and may_help):
            return None
        most = max(most, servers_in_use(ranks, world_size))
    return most or None


@dataclass(frozen=True)
class Demand:
    """Batches per second that a connected job would take from a pipeline; infinite if unknown."""

    pipeline: str
    rate: float


class DesiredServers:
    """Follows demand and capacity. `update` is called every second; not thread-safe."""

    def __init__(self) -> None:
        self.value = 0
        """Desired servers: 0 until a trainer's demand is known, then at least 1."""
        self._recent: list[tuple[float, dict[str, float]]] = []
        """Times and smoothed shares by job in the last `_DOWN_SECONDS`; the largest sum counts."""
        self._capacities: dict[str, float] = {}

    def update(
        self,
        now: float,
        demands: Mapping[str, Demand],
        reports: Mapping[str, ServerReport],
        enough: int | None = None,
    ) -> None:
        """Takes the demands of all connected jobs, the reports by pipeline, and the result of
        `enough_in_use`."""
        for name, report in reports.items():
            known = capacity(report, alone=True)
            if known is not None and report.batches >= MIN_BATCHES:
                self._capacities[name] = known
        most = _MAX_SERVERS if enough is None else float(enough)
        needed = {
            job: min(most, demand.rate / (UTILISATION * self._capacities[demand.pipeline]))
            for job, demand in demands.items()
            if math.isfinite(demand.rate) and demand.pipeline in self._capacities
        }
        recent = [
            (at, _at_most(most, {job: share for job, share in shares.items() if job in demands}))
            for at, shares in self._recent
            if at > now - _DOWN_SECONDS
        ]
        smoothed = _at_most(most, needed)
        if self.value and recent:
            before, shares = recent[-1]
            weight = -math.expm1((before - now) / _SMOOTHING_SECONDS)
            smoothed = {
                job: shares.get(job, 0.0) + weight * (smoothed.get(job, 0.0) - shares.get(job, 0.0))
                for job in shares.keys() | smoothed.keys()
            }
        self._recent = [*recent, (now, smoothed)]
        largest = max(math.fsum(shares.values()) for _, shares in self._recent)
        self.value = max(math.ceil(round(largest, 6)), min(1, self.value))


def _at_most(most: float, shares: Mapping[str, float]) -> dict[str, float]:
    """Returns the shares, scaled down to a sum of at most `most`."""
    scale = min(1.0, most / max(math.fsum(shares.values()), 1e-9))
    return {job: scale * share for job, share in shares.items()}
