"""Tally: what all trainers of a load test have sent, and the count of every sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from infeed.audit.counter import DeliveryCounter
from infeed.audit.report import AuditReport, AuditRun
from infeed.batch import Batch
from infeed.loadtest.plan import LoadPlan
from infeed.loadtest.records import Point, Steps
from infeed.shared.report import ServerReport, TrainerReport
from infeed.shared.spec import Array, PipelineSpec

_SAME_EVENT_SECONDS = 2.0


@dataclass
class Life:
    """A trainer from its start to its end: one, or more if it is killed."""

    started_at: float
    first: Point | None = None
    last: Point | None = None
    steps: list[Steps] = field(default_factory=list)


@dataclass
class Trainer:
    """One trainer of the load test."""

    rank: int
    lives: list[Life] = field(default_factory=list)
    step_count: int = 0
    """Steps that it made, each once."""
    usage: list[tuple[float, float, int]] = field(default_factory=list)
    """Monotonic seconds, processor seconds of all lives, and resident bytes."""
    ended_at: float | None = None

    @property
    def state(self) -> Mapping[str, Any] | None:
        """The cursor to resume from."""
        points = [each.last for each in self.lives if each.last is not None]
        return points[-1].state if points else None

    @property
    def report(self) -> TrainerReport:
        """The last report that covers steps."""
        points = [each.last for each in self.lives if each.last is not None]
        reports = [each.report for each in points if each.report.steps]
        return reports[-1] if reports else TrainerReport()


class Tally:
    """Collects the records of all trainers. Not thread-safe."""

    def __init__(
        self, plan: LoadPlan, spec: PipelineSpec, addresses: Mapping[str, str] | None = None
    ) -> None:
        """`addresses` has the address of a server for that of its proxy."""
        self.plan, self.spec = plan, spec
        self.batch_size = plan.batch_size or spec.batch_size
        self.trainers = [Trainer(rank) for rank in range(plan.trainers)]
        self.servers: dict[str, list[tuple[float, ServerReport]]] = {}
        """The reports of each server, by address, with the time of each."""
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
        self._audits: list[JobAudit] = []
        if spec.guarantee.order != "none":
            world_sizes = [1] * plan.trainers if plan.independent else [plan.trainers]
            stride = spec.stride(self.batch_size)
            self._audits = [JobAudit(spec, size, stride) for size in world_sizes]

    def start(self, rank: int, now: float) -> None:
        """Begins a life of a trainer."""
        self.trainers[rank].lives.append(Life(now))

    def add(self, rank: int, point: Point) -> None:
        """Adds the steps of a trainer."""
        trainer = self.trainers[rank]
        life = trainer.lives[-1]
        life.first, life.last = life.first or point, point
        life.steps.append(point.steps)
        trainer.step_count += len(point.steps)
        earlier = sum(each.last.cpu_seconds for each in trainer.lives[:-1] if each.last)
        cpu_seconds = earlier + point.cpu_seconds
        trainer.usage.append((point.at, cpu_seconds, point.max_memory_bytes))
        for proxy, report in point.servers.items():
            # A trainer keeps the last report of a server that is gone.
            if report.seconds and self._last_reports.get((rank, proxy)) != report:
                self._last_reports[rank, proxy] = report
                reports = self.servers.setdefault(self._addresses.get(proxy, proxy), [])
                reports.append((point.at, report))
        for proxy in point.lost:
            self.lost.setdefault(self._addresses.get(proxy, proxy), point.at)
        self._messages += [(at, rank, self._with_servers(text)) for at, text in point.messages]
        if self._audits:
            audit = self._audits[rank if self.plan.independent else 0]
            audit.add(0 if self.plan.independent else rank, point.steps)

    @property
    def missing(self) -> set[str]:
        """Addresses of the servers that a trainer was without at its end."""
        lives = (each.lives[-1] for each in self.trainers if each.lives)
        lost = {proxy for life in lives if life.last is not None for proxy in life.last.lost}
        return {self._addresses.get(proxy, proxy) for proxy in lost}

    @property
    def have_all_begun(self) -> bool:
        """Whether every trainer has had a batch."""
        return all(each.lives and each.lives[0].first for each in self.trainers)

    @property
    def measured_from(self) -> float:
        """The monotonic time from which figures count; the end, if not all have begun."""
        if self.all_began_at is None:
            return self.ended_at
        return self.all_began_at + self.plan.warm_up

    def all_events(self) -> list[tuple[float, str]]:
        """Returns what happened and what the feeds warned of, with monotonic seconds, in order.

        Equal warnings of several trainers within two seconds are one event.
        """
        groups: dict[str, list[tuple[float, set[int]]]] = {}
        for at, rank, text in sorted(self._messages):
            found = groups.setdefault(text, [])
            if not found or at > found[-1][0] + _SAME_EVENT_SECONDS:
                found.append((at, set()))
            found[-1][1].add(rank)
        warnings = [
            (at, f"{_ranks(ranks, len(self.trainers))}: {text}")
            for text, found in groups.items()
            for at, ranks in found
        ]
        return sorted([*self.events, *warnings])

    def _with_servers(self, text: str) -> str:
        for proxy, server in self._addresses.items():
            text = text.replace(proxy, server)
        return text

    def audits(self, seconds: float) -> list[AuditReport]:
        """Returns the audit of each job; none if the pipeline guarantees no order."""
        seed = self.plan.seed if self.plan.seed is not None else self.spec.seed
        return [
            each.report(self.batch_size, seed + number, seconds)
            for number, each in enumerate(self._audits)
        ]


class JobAudit:
    """Counts the samples of one job, over the steps that all of its ranks have made."""

    def __init__(self, spec: PipelineSpec, world_size: int, stride: int) -> None:
        self._spec = spec
        self._world_size, self._stride = world_size, stride
        self._counter = DeliveryCounter(spec)
        self._pending: list[deque[Batch]] = [deque() for _ in range(world_size)]
        self._ends = [0] * world_size
        """Of each rank, one more than its last step."""
        self._batches = 0

    def add(self, rank: int, steps: Steps) -> None:
        """Adds steps of a rank, and counts what all ranks have reached."""
        for start, ids, epoch in zip(
            steps.starts.tolist(), steps.sample_ids, steps.epochs.tolist(), strict=True
        ):
            self._ends[rank] = max(self._ends[rank], self._step(start) + 1)
            batch = Batch({}, start=start, epoch=epoch, sample_ids=ids, mask=ids >= 0)
            self._pending[rank].append(batch)
        end = self._end
        for pending in self._pending:
            while pending and pending[0].start < end:
                self._counter.add(pending.popleft())
                self._batches += 1

    def report(self, batch_size: int, seed: int, seconds: float) -> AuditReport:
        """Returns the audit of all positions before the slowest rank's last step."""
        run = AuditRun(0, self._world_size, self._stride, min(self._ends))
        return AuditReport(
            spec=self._spec,
            batch_size=batch_size,
            seed=seed,
            remainder="drop",
            runs=(run,),
            outcome=self._counter.outcome(self._end),
            batches=self._batches,
            seconds=seconds,
        )

    @property
    def _end(self) -> int:
        return min(self._ends) * self._stride * self._world_size

    def _step(self, start: int) -> int:
        return start // (self._stride * self._world_size)


def joined(lives: list[Life], name: str) -> Array:
    """Returns an array of `Steps` over lives, without the first step of each: its start-up."""
    parts = []
    for life in lives:
        arrays = [getattr(each, name) for each in life.steps if len(each)]
        if arrays:
            parts.append(np.concatenate(arrays)[1:])
    return np.concatenate(parts) if parts else np.empty(0)


def _ranks(ranks: set[int], trainers: int) -> str:
    if len(ranks) == trainers > 1:
        return "all ranks"
    if len(ranks) > 3:
        return f"{len(ranks)} ranks"
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"
