"""Forecast of what servers can feed, from reports on the measured time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from infeed.report import RankReport, ServerReport, TrainerReport
from infeed.spec import Array
from infeed.stats import STARVED_THRESHOLD_SECONDS
from infeed.verdict import MODERATE_SHARE, capacity, consumption, enough_servers


@dataclass(frozen=True)
class Forecast:
    """What the servers could do, by operational analysis. In batches per second."""

    demand: float | None
    """What the trainers would take without any wait."""
    capacity: float | None
    """What the servers could make together."""
    servers: int
    """The servers that were measured."""
    servers_needed: int | None
    """Servers like them that would be enough."""
    max_trainers: int | None
    """Trainers of this step time that they could feed."""
    shares_machine: bool = False
    """Whether servers share the processors of the trainers' machine: more trainers leave less."""

    def trainers_at(self, utilisation: float, trainers: int) -> int | None:
        """Returns how many could use their accelerators so much, 0 to 1; `trainers` made
        `demand`."""
        if self.capacity is None or self.demand is None:
            return None
        return int(self.capacity * trainers / self.demand / utilisation)


def forecast_of(
    ranks: list[RankReport],
    trainers: int,
    servers: list[ServerReport],
    *,
    neighbours: Collection[ServerReport] = (),
    trainer_cores: float = 0.0,
) -> Forecast:
    """Returns what these servers can feed, of trainers like these.

    `neighbours` are the servers on the machine of the trainers, which use `trainer_cores` of it.
    """
    demand = consumption(ranks, trainers)
    growth = _growth(neighbours, trainer_cores)
    able = []
    for server in servers:
        most = capacity(server)
        if most is not None and server in neighbours:
            most = min(most, growth * server.batches / server.seconds)
        if most is not None:
            able.append(most)
    total = sum(able) if able else None
    needed = enough_servers(ranks, trainers, servers)
    if total is not None and np.isfinite(demand) and _is_fed(ranks, trainers):
        # What was taken without waits can be made, whatever the busy processors promise. Batches
        # that filled the windows at first count as work for others.
        total = max(total, demand)
        needed = None if needed is None else min(needed, len(able))
    made = Forecast(
        demand=demand if np.isfinite(demand) else None,
        capacity=total,
        servers=len(able),
        servers_needed=needed,
        max_trainers=None,
        shares_machine=bool(neighbours),
    )
    return replace(made, max_trainers=made.trainers_at(1.0, trainers))


def _is_fed(ranks: list[RankReport], trainers: int) -> bool:
    """Returns whether every trainer has taken batches, and none was input-bound."""
    reports = [each.report for each in ranks]
    return len(reports) == trainers and all(
        each.steps and each.wait_share < MODERATE_SHARE for each in reports
    )


def _growth(servers: Collection[ServerReport], trainer_cores: float) -> float:
    """Returns by what factor the work of a machine can grow, of its servers and trainers together.

    They need more of it alike; what other processes use of the machine stays theirs.
    """
    used = [each.cpu_seconds / each.seconds for each in servers]
    idle = [each.usable_cores - own for each, own in zip(servers, used, strict=True)]
    return 1 + max(0.0, max(idle, default=0.0)) / max(sum(used) + trainer_cores, 1e-6)


def measured_report(last: TrainerReport, arrays: Mapping[str, Array]) -> TrainerReport:
    """Returns a report on the measured time; what only the feed knows has the last report's rate.

    A report of the feed would cover its last ten seconds alone, with stalls.
    """
    waits = arrays["wait_seconds"]
    waited = float(waits.sum() + arrays["unanswered_seconds"].sum())
    seconds = waited + float(arrays["busy_seconds"].sum())
    if not seconds or not last.seconds:
        return last
    growth = seconds / last.seconds
    return replace(
        last,
        seconds=seconds,
        steps=len(waits),
        wait_seconds=waited,
        starved_steps=int((waits > STARVED_THRESHOLD_SECONDS).sum()),
        receive_seconds=growth * last.receive_seconds,
        cpu_seconds=growth * last.cpu_seconds,
        finish_seconds=growth * last.finish_seconds,
        bytes=int(growth * last.bytes),
    )
