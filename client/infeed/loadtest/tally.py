"""Tally: what all trainers of a load test have sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.loadtest.plan import LoadPlan
from infeed.loadtest.trainer import STEP, Point
from infeed.shared.report import ServerReport, TrainerReport
from infeed.shared.spec import Array, PipelineSpec

_SAME_EVENT_SECONDS = 2.0
"""Seconds in which equal warnings of several trainers are one event: more show fewer."""

TimedReport = tuple[float, ServerReport]
"""Monotonic seconds at the end of the time that a report covers, and the report."""


@dataclass
class Life:
    """A trainer from its start to its end: one, or more if it is killed."""

    started_at: float
    first: Point | None = None
    last: Point | None = None
    steps: list[Array] = field(default_factory=list)
    """Of each point."""
    sample_ids: list[Array] = field(default_factory=list)


@dataclass
class Trainer:
    """One trainer of the load test."""

    rank: int
    lives: list[Life] = field(default_factory=list)

    @property
    def ends(self) -> list[Point]:
        """The last point of each life that has one."""
        return [life.last for life in self.lives if life.last is not None]

    @property
    def state(self) -> Mapping[str, Any] | None:
        """The cursor to resume from."""
        return self.ends[-1].state if self.ends else None

    @property
    def report(self) -> TrainerReport:
        """The last report that covers steps."""
        reports = [point.stats.report for point in self.ends if point.stats.report.steps]
        return reports[-1] if reports else TrainerReport()

    @property
    def points(self) -> Iterator[tuple[Array, Array]]:
        """The steps and the sample ids of each point that has any."""
        for life in self.lives:
            yield from zip(life.steps, life.sample_ids, strict=True)

    @property
    def step_count(self) -> int:
        return sum(len(steps) for steps, _ in self.points)

    @property
    def steps(self) -> Array:
        """All steps but the first of each life, which is its start-up."""
        lives = [np.concatenate([np.empty(0, STEP), *life.steps])[1:] for life in self.lives]
        return np.concatenate([np.empty(0, STEP), *lives])


class Tally:
    """Collects the records of all trainers. Not thread-safe."""

    def __init__(
        self, plan: LoadPlan, spec: PipelineSpec, addresses: Mapping[str, str] | None = None
    ) -> None:
        """`addresses` has the address of the server of each proxy, by the proxy's."""
        self.plan, self.spec = plan, spec
        self.batch_size = plan.batch_size or spec.batch_size
        self.trainers = [Trainer(rank) for rank in range(plan.trainers)]
        self.samples = 0
        """Samples of all trainers so far."""
        self.servers: dict[str, list[TimedReport]] = {}
        """The reports of each server, by address."""
        self.lost: dict[str, float] = {}
        """When a trainer was first without a server, by address, monotonic seconds."""
        self.began_at = 0.0
        self.all_began_at: float | None = None
        """When the last trainer had its first batch."""
        self.ended_at = 0.0
        """When the trainers were stopped, or the first of them was done."""
        self.failures: list[str] = []
        self.events: list[tuple[float, str]] = []
        self.interrupted = False
        self._addresses = addresses or {}
        self._last_reports: dict[tuple[int, str], ServerReport] = {}
        self._messages: list[tuple[float, int, str]] = []

    def start(self, rank: int, now: float) -> None:
        """Begins a life of a trainer."""
        self.trainers[rank].lives.append(Life(now))

    def add(self, rank: int, point: Point) -> None:
        """Adds the steps of a trainer."""
        life = self.trainers[rank].lives[-1]
        life.first, life.last = life.first or point, point
        if len(point.steps):
            life.steps.append(point.steps)
            life.sample_ids.append(point.sample_ids)
            self.samples += int(point.steps["samples"].sum())
        for proxy, report in point.stats.server_reports.items():
            # A trainer keeps the last report of a server that is gone.
            if report.seconds and self._last_reports.get((rank, proxy)) != report:
                self._last_reports[rank, proxy] = report
                self.servers.setdefault(self._server(proxy), []).append((point.at, report))
        for proxy in point.stats.lost_servers:
            self.lost.setdefault(self._server(proxy), point.at)
        self._messages += [(at, rank, text) for at, text in point.messages]

    @property
    def missing(self) -> frozenset[str]:
        """Addresses of the servers that a trainer was without at its end."""
        lives = [trainer.lives[-1] for trainer in self.trainers if trainer.lives]
        points = [life.last for life in lives if life.last]
        return frozenset(
            self._server(proxy) for last in points for proxy in last.stats.lost_servers
        )

    @property
    def begun(self) -> int:
        """Number of trainers that have had a batch."""
        return sum(bool(trainer.lives and trainer.lives[0].first) for trainer in self.trainers)

    @property
    def measured_from(self) -> float:
        """The monotonic time from which figures count; the end, if not all have begun."""
        if self.all_began_at is None:
            return self.ended_at
        return min(self.ended_at, self.all_began_at + self.plan.warm_up_seconds)

    def all_events(self) -> list[tuple[float, str]]:
        """Returns what happened and what the feeds warned of, by seconds since the first start."""
        groups: dict[tuple[str, int], tuple[float, set[int]]] = {}
        for at, rank, text in sorted(self._messages):
            # Equal warnings of several trainers are one event.
            groups.setdefault((text, int(at / _SAME_EVENT_SECONDS)), (at, set()))[1].add(rank)
        events = list(self.events)
        for (text, _), (at, ranks) in groups.items():
            for proxy, server in self._addresses.items():
                text = text.replace(proxy, server)  # noqa: PLW2901 - of every proxy
            few = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
            events.append((at, f"{few if len(ranks) <= 3 else f'{len(ranks)} ranks'}: {text}"))
        return [(at - self.began_at, text) for at, text in sorted(events)]

    def _server(self, proxy: str) -> str:
        return self._addresses.get(proxy, proxy)
