"""Forecast of what servers can feed, from reports on the measured time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from infeed.shared.capacity import capacity, consumption, enough_servers, is_fed
from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.shared.spec import Array
from infeed.stats import STARVED_THRESHOLD_SECONDS


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
    capacity_most: float | None = None
    """What they could make if no other process used their processors."""
    max_trainers_most: int | None = None
    """Trainers that they could feed then."""
    shares_machine: bool = False
    """Whether servers share the processors of the trainers' machine: more trainers leave less."""

    @property
    def is_range(self) -> bool:
        """Whether what other processes do changes the number of trainers."""
        return self.max_trainers != self.max_trainers_most

    def trainers_at(self, utilisation: float, trainers: int) -> int | None:
        """Returns how many could use their accelerators so much, 0 to 1; `trainers` made
        `demand`."""
        return self._trainers(self.capacity, utilisation, trainers)

    def _trainers(self, capacity: float | None, utilisation: float, trainers: int) -> int | None:
        if capacity is None or self.demand is None:
            return None
        return int(capacity * trainers / self.demand / utilisation)


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
    least = _total(servers, neighbours, trainer_cores, alone=False)
    most = _total(servers, neighbours, trainer_cores, alone=True)
    count = sum(capacity(each) is not None for each in servers)
    needed = enough_servers(ranks, trainers, servers)
    if least is not None and most is not None and np.isfinite(demand) and is_fed(ranks, trainers):
        # What was taken without waits can be made, whatever the busy processors promise. Batches
        # that filled the windows at first count as work for others.
        least, most = max(least, demand), max(most, demand)
        needed = None if needed is None else min(needed, count)
    made = Forecast(
        demand=demand if np.isfinite(demand) else None,
        capacity=least,
        servers=count,
        servers_needed=needed,
        max_trainers=None,
        capacity_most=most,
        shares_machine=bool(neighbours),
    )
    return replace(
        made,
        max_trainers=made.trainers_at(1.0, trainers),
        max_trainers_most=made._trainers(most, 1.0, trainers),
    )


def _total(
    servers: list[ServerReport],
    neighbours: Collection[ServerReport],
    trainer_cores: float,
    *,
    alone: bool,
) -> float | None:
    """Returns what the servers could make together; `alone`, if others used no processor."""
    growth = _growth(neighbours, trainer_cores, alone=alone)
    able = []
    for server in servers:
        most = capacity(server, alone=alone)
        if most is not None and server in neighbours:
            most = min(most, growth * server.batches / server.seconds)
        if most is not None:
            able.append(most)
    return sum(able) if able else None


def _growth(
    servers: Collection[ServerReport], trainer_cores: float, *, alone: bool = False
) -> float:
    """Returns by what factor the work of a machine can grow, of its servers and trainers together.

    They need more of it alike; what other processes use of the machine stays theirs, unless the
    machine is to be `alone` with them.
    """
    used = [each.cpu_seconds / each.seconds for each in servers]
    together = sum(used) + trainer_cores
    if alone:
        idle = max((each.cores for each in servers), default=0.0) - together
    else:
        pairs = zip(servers, used, strict=True)
        idle = max((each.usable_cores - own for each, own in pairs), default=0.0)
    return 1 + max(0.0, idle) / max(together, 1e-6)


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
