"""The search for the number of trainers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infeed_tools.loadtest.find_max import find_max
from infeed_tools.loadtest.plan import LoadPlan


def search(most: int, limit: int = 12, share: float = 0.5, ended_early: bool = False) -> Any:
    """Searches with servers that can feed `most` trainers; more have the utilisation `share`."""
    asked: list[str] = []

    def run(plan: LoadPlan) -> Any:
        return SimpleNamespace(
            trainers=plan.trainers,
            utilisation=0.95 if plan.trainers <= most else share,
            samples_per_second=1.0,
            ended_early=ended_early,
        )

    return *find_max(run, LoadPlan(trainers=limit), asked.append), asked


@pytest.mark.parametrize("most", range(13))
def test_the_largest_number_is_found(most: int) -> None:
    found, summary, asked = search(most)
    assert (found.max_trainers, found.is_bounded) == (most, most < 12)
    assert summary.trainers == (most or 1)
    assert len(asked) == len(found.probes) <= 8


def test_a_test_that_ends_early_ends_the_search() -> None:
    found, summary, asked = search(12, ended_early=True)
    assert (found, summary.trainers, asked) == (None, 1, [])
