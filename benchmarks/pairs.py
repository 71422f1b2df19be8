"""Two consumers in turn, A B A B: the ratio of each pair survives a machine whose speed drifts."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

Run = dict[str, Any]
"""What consume.py printed."""

Measure = Callable[[Run], float]


def gigabytes_per_second(run: Run) -> float:
    return float(run["bytes"] / run["seconds"] / 1e9)


def images_per_second(run: Run) -> float:
    return float(run["images"] / run["seconds"])


def cpu_seconds_per_gigabyte(run: Run) -> float:
    return float(run["cpu_seconds"] / run["bytes"] * 1e9)


@dataclass(frozen=True)
class Side:
    """One consumer: the arguments of consume.py but the seconds."""

    name: str
    kind: str
    address: str
    dataset: str
    compression: str = "none"

    def run(self, seconds: float) -> Run:
        words = [self.kind, self.address, self.dataset, str(seconds), self.compression]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.consume", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=60 + 10 * seconds,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        if done.returncode:
            raise RuntimeError(f"{self.name}: {done.stderr[-2000:]}")
        found: Run = json.loads(done.stdout.splitlines()[-1])
        return found


@dataclass(frozen=True)
class Comparison:
    """The figures of both sides, pair by pair."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratios(self) -> list[float]:
        return [mine / other for mine, other in zip(self.ours, self.theirs, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


def alternate(ours: Side, theirs: Side, pairs: int, seconds: float) -> list[tuple[Run, Run]]:
    """The runs of each pair, after one that is not counted."""
    ours.run(seconds / 2)
    theirs.run(seconds / 2)
    return [(ours.run(seconds), theirs.run(seconds)) for _ in range(pairs)]


def compare(runs: list[tuple[Run, Run]], measure: Measure) -> Comparison:
    return Comparison([measure(mine) for mine, _ in runs], [measure(other) for _, other in runs])
