"""Forecast of what servers can feed, from reports on the measured time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from infeed.shared.capacity import capacity, consumption, enough_servers, is_fed
from infeed.shared.report import RankReport, ServerReport


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
    ranks: list[RankReport], trainers: int, servers: list[ServerReport], *, shares_machine: bool
) -> Forecast:
    """Returns what these servers can feed, of trainers like these."""
    demand = consumption(ranks, trainers)
    known = demand if demand < math.inf else None
    able = [most for most in map(capacity, servers) if most is not None]
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
        shares_machine=shares_machine,
    )


def _trainers(capacity: float | None, demand: float | None, trainers: float) -> int | None:
    return None if capacity is None or demand is None else int(capacity * trainers / demand)
