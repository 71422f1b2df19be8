"""Search for the number of trainers that servers can feed: doubling, then bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Probe:
    """One load test of the search."""

    trainers: int
    utilisation: float
    """Of the worst trainer, 0 to 1."""
    samples_per_second: float
    forecast: int | None
    """Trainers that the servers could feed, from the reports of this test."""


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
        plural = "" if self.max_trainers == 1 else "s"
        line = f"{self.max_trainers}{limit} trainer{plural} can be fed"
        if not self.max_trainers:
            line += f": a single one reaches {100 * self.probes[-1].utilisation:.1f} %"
        if self.forecast is None:
            return line
        return f"{line}; the forecast of the first test was {self.forecast}"


def find_max(
    probe: Callable[[int], Probe], threshold: float, *, first: int = 1, limit: int = 64
) -> Search:
    """Finds the largest number of trainers, up to `limit`, that keeps the utilisation.

    `probe` runs a load test with a number of trainers. Assumes that more trainers use their
    accelerators less.
    """
    probes: list[Probe] = []

    def keeps(trainers: int) -> bool:
        probes.append(probe(trainers))
        return probes[-1].utilisation >= threshold

    good, bad = 0, None
    trainers = min(first, limit)
    while bad is None:
        if keeps(trainers):
            good = trainers
            if trainers == limit:
                break
            trainers = min(limit, 2 * trainers)
        else:
            bad = trainers
    while bad is not None and bad - good > 1:
        middle = (good + bad) // 2
        if keeps(middle):
            good = middle
        else:
            bad = middle
    return Search(tuple(probes), good, bad is not None)
