"""What a case found: figures of two sides, pair by pair, and what they were to reach."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


def rounded(value: float) -> str:
    """A figure to three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@dataclass(frozen=True)
class Target:
    """A bound on the median of the ratios, or of infeed's own figures."""

    limit: float
    sense: Literal["at least", "at most"] = "at least"
    of: Literal["ratio", "figure"] = "ratio"
    is_aim: bool = False
    """Wished for rather than required."""

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.sense == "at least" else value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.sense == "at least" else "≤"
        aim, own = "aim " * self.is_aim, "infeed " * (self.of == "figure")
        return f"{aim}{own}{sign} {self.limit:g}"


@dataclass(frozen=True)
class Figures:
    """One side's, a figure a run."""

    name: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "median": self.median, "values": list(self.values)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Figures:
        return cls(found["name"], found["values"])


@dataclass(frozen=True)
class Finding:
    """One measure of a case."""

    measure: str
    """With its unit."""
    ours: Figures
    theirs: Figures | None
    """None where infeed is compared with nobody."""
    target: Target | None = None
    more_is_better: bool = True
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Of each pair: a machine whose speed drifts spoils the figures, not these."""
        if self.theirs is None:
            return []
        pairs = zip(self.ours.values, self.theirs.values, strict=True)
        return [mine / other for mine, other in pairs]

    @property
    def ratio(self) -> float:
        """The median; not a number where there is no peer."""
        return statistics.median(self.ratios or [math.nan])

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is; None where there is none."""
        if self.target is None:
            return None
        return self.target.holds(self.ratio if self.target.of == "ratio" else self.ours.median)

    def to_json(self) -> dict[str, Any]:
        ratios = self.ratios
        spread = {"median": self.ratio, "min": min(ratios), "max": max(ratios)} if ratios else {}
        return {
            "measure": self.measure,
            "ours": self.ours.to_json(),
            "theirs": self.theirs and self.theirs.to_json(),
            "ratios": ratios,
            "ratio": spread,
            "more_is_better": self.more_is_better,
            "target": self.target and vars(self.target),
            "is_reached": self.is_reached,
            "note": self.note,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Finding:
        """The same finding; what follows from its figures is worked out anew."""
        return cls(
            found["measure"],
            Figures.from_json(found["ours"]),
            found["theirs"] and Figures.from_json(found["theirs"]),
            found["target"] and Target(**found["target"]),
            found["more_is_better"],
            found["note"],
        )
