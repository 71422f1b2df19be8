"""Tally: the records of all trainers of a load test."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from infeed.shared.report import ServerReport, TrainerReport
from infeed.shared.spec import Array, PipelineSpec
from infeed_tools.loadtest.plan import LoadPlan
from infeed_tools.loadtest.trainer import STEP, Point

_SAME_EVENT_SECONDS = 2.0
"""Seconds within which equal warnings of several trainers are one event: with more, fewer show."""

TimedReport = tuple[float, ServerReport]
"""The monotonic time in seconds at the end of a report's period, and the report."""


@dataclass
class Trainer:
    """A trainer of the load test."""

    rank: int
    started_at: float = 0.0
    first: Point | None = None
    last: Point | None = None
    points: list[tuple[Array, Array]] = field(default_factory=list)
    """The steps and sample ids of each point with steps."""

    @property
    def report(self) -> TrainerReport:
        """The last report, if it covers steps."""
        last = self.last and self.last.stats.report
        return last if last and last.steps else TrainerReport()

    @property
    def steps(self) -> Array:
        """All steps except the first, which is the trainer's start-up."""
        return np.concatenate([np.empty(0, STEP), *(steps for steps, _ in self.points)])[1:]


class Tally:
    """Collects the records of all trainers. Not thread-safe."""

    def __init__(self, plan: LoadPlan, spec: PipelineSpec) -> None:
        self.plan, self.spec = plan, spec
        self.batch_size = plan.batch_size or spec.batch_size
        self.trainers = [Trainer(rank) for rank in range(plan.trainers)]
        self.samples = 0
        """Samples received by all trainers so far."""
        self.servers: dict[str, list[TimedReport]] = {}
        """The reports of each server, by address."""
        self.lost: dict[str, float] = {}
        """Monotonic times at which a trainer first lost a server, by its address."""
        self.began_at = 0.0
        self.all_began_at: float | None = None
        """The time at which the last trainer had its first batch."""
        self.ended_at = 0.0
        """The time at which the trainers were stopped, or the first of them finished."""
        self.failures: list[str] = []
        self.interrupted = False
        self._last_reports: dict[tuple[int, str], ServerReport] = {}
        self._messages: list[tuple[float, int, str]] = []

    def add(self, rank: int, point: Point) -> None:
        """Adds the steps of a trainer."""
        trainer = self.trainers[rank]
        trainer.first, trainer.last = trainer.first or point, point
        if len(point.steps):
            trainer.points.append((point.steps, point.sample_ids))
            self.samples += int(point.steps["samples"].sum())
        for address, report in point.stats.server_reports.items():
            # A trainer keeps the last report of a lost server.
            if report.seconds and self._last_reports.get((rank, address)) != report:
                self._last_reports[rank, address] = report
                self.servers.setdefault(address, []).append((point.at, report))
        for address in point.stats.lost_servers:
            self.lost.setdefault(address, point.at)
        self._messages += [(at, rank, text) for at, text in point.messages]

    @property
    def missing(self) -> frozenset[str]:
        """Addresses of the servers that a trainer lacked at its end."""
        points = [trainer.last for trainer in self.trainers if trainer.last]
        return frozenset(address for last in points for address in last.stats.lost_servers)

    @property
    def begun(self) -> int:
        """Number of trainers that have had a batch."""
        return sum(trainer.first is not None for trainer in self.trainers)

    @property
    def measured_from(self) -> float:
        """The monotonic time from which figures count; the end if not all trainers began."""
        if self.all_began_at is None:
            return self.ended_at
        return min(self.ended_at, self.all_began_at + self.plan.warm_up_seconds)

    def events(self) -> list[tuple[float, str]]:
        """Returns the feeds' warnings, with the seconds since the first start."""
        groups: dict[tuple[str, int], tuple[float, set[int]]] = {}
        for at, rank, text in sorted(self._messages):
            # Equal warnings of several trainers are one event.
            groups.setdefault((text, int(at / _SAME_EVENT_SECONDS)), (at, set()))[1].add(rank)
        events = []
        for (text, _), (at, ranks) in groups.items():
            few = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
            events.append((at, f"{few if len(ranks) <= 3 else f'{len(ranks)} ranks'}: {text}"))
        return [(at - self.began_at, text) for at, text in sorted(events)]
