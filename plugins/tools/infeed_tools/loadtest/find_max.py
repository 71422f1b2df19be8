"""Search for the number of trainers that servers can feed: doubling, then bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from infeed_tools.loadtest.plan import UTILISATION_THRESHOLD, LoadPlan
from infeed_tools.loadtest.summary import Summary


@dataclass(frozen=True)
class Search:
    """The result of a search."""

    probes: dict[int, float]
    """The worst trainer's utilisation by number of trainers, in the order of the tests."""
    max_trainers: int
    """The largest number that kept the threshold; 0 if even one trainer did not."""
    is_bounded: bool
    """Whether more trainers missed it; if not, the plan's limit ended the search."""

    def __str__(self) -> str:
        limit = "" if self.is_bounded else " or more"
        line = f"{self.max_trainers}{limit} trainer{'s' * (self.max_trainers != 1)} can be fed"
        if not self.max_trainers:
            line += f": a single one reaches {100 * self.probes[1]:.1f} %"
        return line


def find_max(
    run: Callable[[LoadPlan], Summary], plan: LoadPlan, show: Callable[[str], None]
) -> tuple[Search | None, Summary]:
    """Finds the largest number of trainers, up to the plan's, that keeps the utilisation.

    Assumes that utilisation falls with more trainers. Also returns the test with that number. A
    test that is interrupted, fails or loses a server ends the search and is returned without a
    result.
    """
    threshold = plan.min_utilisation or UTILISATION_THRESHOLD
    results: dict[int, Summary] = {}
    probes: dict[int, float] = {}
    good, bad, trainers = 0, plan.trainers + 1, 1
    while bad - good > 1:
        summary = results[trainers] = run(replace(plan, trainers=trainers))
        if summary.ended_early:
            return None, summary
        used = probes[trainers] = summary.utilisation or 0.0
        rate = f"{summary.samples_per_second:.0f} samples/s"
        show(f"{trainers:4} trainers: utilisation {100 * used:.1f} %, {rate}")
        if used >= threshold:
            good = trainers
        else:
            bad = trainers
        trainers = min(2 * trainers, plan.trainers) if bad > plan.trainers else (good + bad) // 2
    return Search(probes, good, bad <= plan.trainers), results[good or 1]
