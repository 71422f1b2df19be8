"""Desired servers: how many servers like this one would feed all connected trainers without waits.

    Σ over pipelines: batches/s that the trainers would take ÷ batches/s that one server makes

Neither depends on the present number of servers: of a training that waits, the time of its steps
alone counts. So an autoscaler that follows the value has a fixed point, and does not oscillate.
Neither do other processes of the host count: on a busy host the capacity would follow the demand,
and each new server would let the value grow.

Where the verdict on every job is that more servers would not help, those in use are enough.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from infeed.shared.capacity import MIN_BATCHES, capacity, servers_in_use
from infeed.shared.cause import HELPED_BY_SERVERS
from infeed.shared.report import RankReport, ServerReport
from infeed.shared.verdict import Verdict

UTILISATION = 0.85
"""Share of its capacity at which a server should run: the rest is for uneven load."""

_SMOOTHING_SECONDS = 30.0
"""Time constant of the smoothing: steps and batches vary."""

_DOWN_SECONDS = 300.0
"""Time for which fewer servers must have been enough: a training that waits is dear, a server too
many is not, and a training may pause for a checkpoint."""

_MARGIN, _MARGIN_SHARE = 0.1, 0.05
"""Servers, and share of all servers, by which fewer must be enough."""

_MAX_SERVERS = 1000.0
"""The most that is desired: the steps of trainers are not verified, and the mean of a wrong one
would stay too high for long after it."""

JobVerdict = tuple[Collection[RankReport], int, Verdict]
"""The reports of a job's ranks, its world size, and the verdict on it."""


def enough_in_use(jobs: Iterable[JobVerdict]) -> int | None:
    """Returns the number of servers in use, if more of them would help no job; None if unknown."""
    most = 0
    for ranks, world_size, verdict in jobs:
        may_help = verdict.cause is None or verdict.cause in HELPED_BY_SERVERS
        if verdict.level == "unknown" or (verdict.is_input_bound and may_help):
            return None
        most = max(most, servers_in_use(ranks, world_size))
    return most or None


class DesiredServers:
    """Follows demand and capacity. `update` is called every second; not thread-safe."""

    def __init__(self) -> None:
        self.value = 0
        """Servers that are desired; 0 until a trainer was connected and something is known, and
        from then on at least 1."""
        self._smoothed = 0.0
        self._updated_at: float | None = None
        self._fewer_since: float | None = None
        """The time since which fewer servers have been enough, `_most` at most."""
        self._most = 0.0
        self._capacities: dict[str, float] = {}

    def update(
        self,
        now: float,
        demands: Mapping[str, float],
        reports: Mapping[str, ServerReport],
        enough: int | None = None,
    ) -> None:
        """Takes the batches per second that trainers would take, and the reports, by pipeline.

        `enough` is what `enough_in_use` returns.
        """
        for name, report in reports.items():
            known = capacity(report, alone=True)
            if known is not None and report.batches >= MIN_BATCHES:
                self._capacities[name] = known
        needed = sum(
            demand / (UTILISATION * self._capacities[name])
            for name, demand in demands.items()
            if math.isfinite(demand) and name in self._capacities
        )
        most = _MAX_SERVERS if enough is None else float(enough)
        self._smooth(now, min(needed, most))
        if enough is not None:
            self._smoothed = min(self._smoothed, most)
            self.value = min(self.value, enough)
        if self._smoothed > self.value:
            self.value = math.ceil(self._smoothed)
        self._reduce(now)

    def _smooth(self, now: float, needed: float) -> None:
        before, self._updated_at = self._updated_at, now
        if before is None or not self.value:
            self._smoothed = needed
        else:
            change = -math.expm1((before - now) / _SMOOTHING_SECONDS)
            self._smoothed += (needed - self._smoothed) * change

    def _reduce(self, now: float) -> None:
        """Reduces the value to what has been enough for so long."""
        margin = _MARGIN + _MARGIN_SHARE * self.value
        if self._smoothed > self.value - 1 - margin:
            self._fewer_since = None
            return
        if self._fewer_since is None:
            self._fewer_since, self._most = now, 0.0
        self._most = max(self._most, self._smoothed)
        if now >= self._fewer_since + _DOWN_SECONDS:
            self.value = math.ceil(self._most + margin)  # at least 1: of 0, no trainer could report
            self._fewer_since = None
