"""Verdict: whether the input limits a training job, in TensorFlow's profiler's terms, and why."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from infeed.shared.capacity import MODERATE_SHARE, consumption, enough_servers
from infeed.shared.cause import HELPED_BY_SERVERS, Cause, advice_for, find_cause
from infeed.shared.report import RankReport, ServerReport

HIGH_SHARE = 0.20
"""Share of the step time spent waiting from which a job counts as highly input-bound."""

MIN_SECONDS = 3.0
"""Seconds that a verdict must cover: a feed's first batches wait for the pipeline to warm up."""

Level = Literal["unknown", "not input-bound", "moderately input-bound", "highly input-bound"]


@dataclass(frozen=True)
class Verdict:
    """The answer for one job; `str` is the same line everywhere."""

    level: Level
    wait_share: float = 0.0
    """Share of the time that the worst rank spent waiting, 0 to 1."""
    rank: int = 0
    world_size: int = 1
    cause: Cause | None = None
    """None if not input-bound, or if no server has reported."""
    detail: str = ""
    """The figures that show the cause."""
    servers: int | None = None
    """Number of servers like these that would be enough; None if unknown or no help."""
    advice: str = ""
    """What to change first."""

    @property
    def is_input_bound(self) -> bool:
        """Whether the job waits for a moderate or high share of its time."""
        return self.level in ("moderately input-bound", "highly input-bound")

    def to_json(self) -> dict[str, Any]:
        """Returns the verdict for JSON; `text` is the line."""
        return {**vars(self), "text": str(self)}

    def __str__(self) -> str:
        if self.level == "unknown":
            return f"no verdict yet: {self.detail}"
        of = f"rank {self.rank} of {self.world_size}" if self.world_size > 1 else "the trainer"
        line = f"{self.level}: {of} waited {100 * self.wait_share:.1f} % of the time"
        if not self.is_input_bound:
            return f"{line}; the input keeps up"
        if self.cause is None:
            return f"{line}; no server has yet reported the cause"
        line += f"; cause: {self.cause} ({self.detail})"
        if self.servers is not None:
            line += f"; {self.servers} such server{'s' * (self.servers > 1)} would be enough"
        return f"{line}; first: {self.advice}"


def judge(
    ranks: Collection[RankReport],
    world_size: int,
    servers: Collection[ServerReport],
    missing: Mapping[str, str] | None = None,
) -> Verdict:
    """Judges a job by its worst rank, from each server's last report. `missing` tells, by name,
    what happened to servers that do not serve."""
    taken = [rank for rank in ranks if rank.report.steps]
    measured = [rank for rank in taken if rank.report.seconds >= MIN_SECONDS]
    if not measured:
        seconds = max((rank.report.seconds for rank in taken), default=0.0)
        steps = max((rank.report.total_steps for rank in ranks), default=0)
        detail = f"{steps} batch{'es' * (steps != 1)} taken"
        detail += ", none in the seconds measured" * (steps > 1)
        detail += f"; ask again when the training has run for {MIN_SECONDS:g} s"
        if taken:  # rounded down, so that it does not read as enough
            seconds = math.floor(10 * seconds) / 10
            detail = f"{seconds:.1f} s measured, at least {MIN_SECONDS:g} s are needed"
        return Verdict("unknown", detail=detail)
    worst = max(measured, key=lambda rank: rank.report.wait_share)
    share = worst.report.wait_share
    verdict = Verdict(_level(share), share, worst.rank, world_size)
    reports = [server for server in servers if server.seconds]
    if not verdict.is_input_bound or not (reports or missing):
        return verdict
    if missing:
        cause: Cause = "missing server"
        detail = ", ".join(f"{name} {problem}" for name, problem in sorted(missing.items()))
    else:
        cause, detail = find_cause(worst.report, reports)
    demand = consumption(measured, world_size)
    enough = None
    if cause in HELPED_BY_SERVERS:
        enough = enough_servers(measured, world_size, reports)
        if not math.isfinite(demand):
            detail += ", for a loop that does no work between batches"
    if enough is not None and enough <= max(len(reports), worst.report.streams):
        enough = None  # this number is not enough at present
    advice = advice_for(cause, reports, demand)
    return replace(verdict, cause=cause, detail=detail, servers=enough, advice=advice)


def _level(wait_share: float) -> Level:
    if wait_share < MODERATE_SHARE:
        return "not input-bound"
    return "highly input-bound" if wait_share >= HIGH_SHARE else "moderately input-bound"
