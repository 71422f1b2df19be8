"""Forecast of what servers can feed, from reports on the measured time."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from infeed.loadtest.figures import Measured
from infeed.shared.capacity import capacity, consumption, enough_servers, is_fed
from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.stats import STARVED_THRESHOLD_SECONDS


@dataclass(frozen=True)
class Forecast:
    """What the servers could do, by operational analysis. In batches per second."""

    demand: float | None
    """What the trainers would take without any wait."""
    capacity: float | None
    """What the servers could make together, beside what other processes use of their processors."""
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
        return _trainers(self.capacity, self.demand, trainers / utilisation)


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
    known = demand if demand < math.inf else None
    growth = _growth(neighbours, trainer_cores)
    able = []
    for server in servers:
        most = capacity(server)
        if most is not None:
            grown = growth * server.batches / server.seconds
            able.append(min(most, grown) if server in neighbours else most)
    total = sum(able) if able else None
    needed = enough_servers(ranks, trainers, servers)
    if total is not None and known is not None and is_fed(ranks, trainers):
        # What was taken without waits can be made, whatever the busy processors promise. Batches
        # that filled the windows at first count as work for others.
        total = max(total, known)
        needed = None if needed is None else min(needed, len(able))
    return Forecast(
        demand=known,
        capacity=total,
        servers=len(able),
        servers_needed=needed,
        max_trainers=_trainers(total, known, trainers),
        shares_machine=bool(neighbours),
    )


def _trainers(capacity: float | None, demand: float | None, trainers: float) -> int | None:
    return None if capacity is None or demand is None else int(capacity * trainers / demand)


def _growth(servers: Collection[ServerReport], trainer_cores: float) -> float:
    """Returns by what factor the work of a machine can grow, of its servers and trainers together.

    They need more of it alike; what other processes use of the machine stays theirs.
    """
    used = {id(server): server.cpu_seconds / server.seconds for server in servers}
    idle = max((server.usable_cores - used[id(server)] for server in servers), default=0.0)
    return 1 + max(0.0, idle) / max(sum(used.values()) + trainer_cores, 1e-6)


def measured_report(last: TrainerReport, made: Measured) -> TrainerReport:
    """Returns a report on the measured time; what only the feed knows has the last report's rate.

    A report of the feed would cover its last ten seconds alone, with stalls.
    """
    seconds = made.waited + float(made.steps["busy_seconds"].sum())
    if not seconds or not last.seconds:
        return last
    growth = seconds / last.seconds
    return replace(
        last,
        seconds=seconds,
        steps=len(made.steps),
        wait_seconds=made.waited,
        starved_steps=int((made.steps["wait_seconds"] > STARVED_THRESHOLD_SECONDS).sum()),
        receive_seconds=growth * last.receive_seconds,
        cpu_seconds=growth * last.cpu_seconds,
        finish_seconds=growth * last.finish_seconds,
        bytes=int(growth * last.bytes),
    )
