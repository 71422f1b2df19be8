"""Search for the number of trainers that servers can feed: doubling, then bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from infeed.loadtest.plan import UTILISATION_THRESHOLD, LoadPlan
from infeed.loadtest.summary import Summary
from infeed.loadtest.tally import Tally

Result = tuple[Summary, Tally]


@dataclass(frozen=True)
class Probe:
    """One load test of the search."""

    trainers: int
    utilisation: float
    """Of the worst trainer, 0 to 1."""
    samples_per_second: float
    forecast: int | None
    """Trainers that the servers could feed, from the reports of this test."""

    def __str__(self) -> str:
        forecast = "" if self.forecast is None else f", forecast {self.forecast} trainers"
        return (
            f"{self.trainers:4} trainers: utilisation {100 * self.utilisation:.1f} %, "
            f"{self.samples_per_second:.0f} samples/s{forecast}"
        )


@dataclass(frozen=True)
class Search:
    """The result of a search."""

    probes: tuple[Probe, ...]
    """In the order in which they ran."""
    max_trainers: int
    """The largest number that kept the threshold; 0 if one trainer did not."""
    is_bounded: bool
    """Whether more trainers did not keep it; else the limit ended the search."""

    @property
    def forecast(self) -> int | None:
        """The forecast of the first probe, before the servers were loaded."""
        return self.probes[0].forecast

    def to_json(self) -> dict[str, Any]:
        """Returns the result as values for `json.dumps`."""
        return {**asdict(self), "forecast": self.forecast}

    def __str__(self) -> str:
        limit = "" if self.is_bounded else " or more"
        line = f"{self.max_trainers}{limit} trainer{'s' * (self.max_trainers != 1)} can be fed"
        if not self.max_trainers:
            line += f": a single one reaches {100 * self.probes[-1].utilisation:.1f} %"
        if self.forecast is None:
            return line
        return f"{line}; the forecast of the first test was {self.forecast}"


def find_max(
    run: Callable[[LoadPlan], Result], plan: LoadPlan, show: Callable[[Probe], None]
) -> tuple[Search | None, Summary, Tally]:
    """Finds the largest number of trainers, up to the plan's, that keeps the utilisation.

    Assumes that more trainers use their accelerators less. Returns the load test with that number,
    too. A test that is interrupted, has a failure or loses a server ends the search, without a
    result, and is returned.
    """
    threshold = plan.thresholds.min_utilisation or UTILISATION_THRESHOLD
    results: dict[int, Result] = {}
    probes: list[Probe] = []
    good, bad, trainers = 0, plan.trainers + 1, 1
    while bad - good > 1:
        results[trainers] = summary, tally = run(_with_trainers(plan, trainers))
        is_lost = summary.lost and not plan.thresholds.allow_lost_servers
        if summary.interrupted or summary.failures or is_lost:
            return None, summary, tally
        forecast = summary.forecast.trainers_at(threshold, trainers)
        used = summary.utilisation or 0.0
        probes.append(Probe(trainers, used, summary.samples_per_second, forecast))
        show(probes[-1])
        if used >= threshold:
            good = trainers
        else:
            bad = trainers
        trainers = min(2 * trainers, plan.trainers) if bad > plan.trainers else (good + bad) // 2
    search = Search(tuple(probes), good, bad <= plan.trainers)
    return search, *results[good or probes[-1].trainers]


def _with_trainers(plan: LoadPlan, trainers: int) -> LoadPlan:
    """Returns the plan for fewer trainers, without the faults of the others."""
    stalls = tuple(stall for stall in plan.stalls if stall.rank < trainers)
    kills = tuple(kill for kill in plan.kills if kill.rank < trainers)
    return replace(plan, trainers=trainers, stalls=stalls, kills=kills)
