"""Findings of a case: figures of two sides, pair by pair, and their target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


def rounded(value: float) -> str:
    """Returns a figure with three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@dataclass(frozen=True)
class Target:
    """Bound on the median of the ratios, or of infeed's own figures."""

    limit: float
    sense: Literal["at least", "at most"] = "at least"
    of: Literal["ratio", "figure"] = "ratio"
    is_aim: bool = False
    """Whether the target is an aim, not a requirement."""

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.sense == "at least" else value <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.sense == "at least" else "≤"
        aim, own = "aim " * self.is_aim, "infeed " * (self.of == "figure")
        return f"{aim}{own}{sign} {self.limit:g}"


@dataclass(frozen=True)
class Figures:
    """Figures of one side, one for each run."""

    name: str
    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "median": self.median, "values": list(self.values)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Figures:
        return cls(saved["name"], saved["values"])


@dataclass(frozen=True)
class Finding:
    """Result of one measure of a case."""

    measure: str
    """Name with its unit."""
    ours: Figures
    theirs: Figures | None
    """None if infeed is not compared with a peer."""
    target: Target | None = None
    more_is_better: bool = True
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ratio of each pair: drift of the machine's speed affects figures, but not ratios."""
        if self.theirs is None:
            return []
        pairs = zip(self.ours.values, self.theirs.values, strict=True)
        return [our_value / their_value for our_value, their_value in pairs]

    @property
    def ratio(self) -> float:
        """Median of the ratios; NaN without a peer."""
        return statistics.median(self.ratios or [math.nan])

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is reached; None without a target."""
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
    def from_json(cls, saved: dict[str, Any]) -> Finding:
        """Returns the saved finding; derived values are computed again from its figures."""
        return cls(
            saved["measure"],
            Figures.from_json(saved["ours"]),
            saved["theirs"] and Figures.from_json(saved["theirs"]),
            saved["target"] and Target(**saved["target"]),
            saved["more_is_better"],
            saved["note"],
        )
