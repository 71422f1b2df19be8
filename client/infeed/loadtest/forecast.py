"""Forecast of what servers can feed, from reports on the measured time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from infeed.report import RankReport, ServerReport, TrainerReport
from infeed.spec import Array
from infeed.stats import STARVED_THRESHOLD_SECONDS
from infeed.verdict import capacity, consumption, enough_servers


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


def forecast_of(ranks: list[RankReport], trainers: int, servers: list[ServerReport]) -> Forecast:
    """Returns what these servers can feed, of trainers like these."""
    demand = consumption(ranks, trainers)
    able = [each for each in map(capacity, servers) if each is not None]
    total = sum(able) if able else None
    finite = demand if np.isfinite(demand) else None
    max_trainers = None
    if total is not None and finite:
        max_trainers = int(total * trainers / finite)
    return Forecast(
        demand=finite,
        capacity=total,
        servers=len(able),
        servers_needed=enough_servers(ranks, trainers, servers),
        max_trainers=max_trainers,
    )


def measured_report(last: TrainerReport, arrays: Mapping[str, Array]) -> TrainerReport:
    """Returns a report on the measured time; what only the feed knows has the last report's rate.

    A report of the feed would cover its last ten seconds alone, with stalls.
    """
    waits = arrays["wait_seconds"]
    seconds = float(waits.sum() + arrays["busy_seconds"].sum())
    if not seconds or not last.seconds:
        return last
    growth = seconds / last.seconds
    return replace(
        last,
        seconds=seconds,
        steps=len(waits),
        wait_seconds=float(waits.sum()),
        starved_steps=int((waits > STARVED_THRESHOLD_SECONDS).sum()),
        receive_seconds=growth * last.receive_seconds,
        cpu_seconds=growth * last.cpu_seconds,
        finish_seconds=growth * last.finish_seconds,
        bytes=int(growth * last.bytes),
    )


def merged_reports(reports: list[tuple[float, ServerReport]], begin: float) -> ServerReport:
    """Returns one report on the time since `begin`, from reports whose times overlap.

    Takes the last one, and those before it that overlap neither one that is taken nor `begin`.
    """
    at, last = reports[-1]
    taken, free_until = [last], at - last.seconds
    for at, report in reversed(reports):
        if at <= free_until and at - report.seconds >= begin:
            taken.append(report)
            free_until = at - report.seconds
    sums = {
        name: sum(getattr(each, name) for each in taken)
        for name in last.to_json()
        if name != "cores"
    }
    return replace(last, **sums)
