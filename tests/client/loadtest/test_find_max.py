"""The search for the number of trainers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infeed.loadtest import Kill, LoadPlan
from infeed.loadtest.find_max import Search, find_max


def search(most: int, limit: int = 12, share: float = 0.5, **values: Any) -> tuple[Any, ...]:
    """Searches where so many trainers can be fed; more have the utilisation `share`."""
    probes: list[int] = []

    def run(plan: LoadPlan) -> Any:
        assert all(kill.rank < plan.trainers for kill in plan.kills)
        forecast = SimpleNamespace(trainers_at=lambda *_: 7)
        utilisation = 0.95 if plan.trainers <= most else share
        given = {"lost": {}, "interrupted": False, "failures": (), "forecast": forecast}
        figures = {"utilisation": utilisation, "samples_per_second": 1.0}
        return SimpleNamespace(**{**given, **figures, **values}), plan.trainers

    plan = LoadPlan(trainers=limit, kills=(Kill(limit - 1, 1.0),))
    return *find_max(run, plan, lambda probe: probes.append(probe.trainers)), probes


@pytest.mark.parametrize("most", range(13))
def test_the_largest_number_is_found(most: int) -> None:
    found, _, trainers, asked = search(most)
    assert (found.max_trainers, found.is_bounded) == (most, most < 12)
    assert trainers == (most or 1)
    assert len(asked) == len(set(asked)) <= 8
    assert found.forecast == 7


@pytest.mark.parametrize("end", [{"interrupted": True}, {"failures": ("x",)}, {"lost": {"a": 1}}])
def test_a_test_that_ends_early_ends_the_search(end: dict[str, Any]) -> None:
    assert search(12, **end)[0] is None


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (search(4, 4)[0], "4 or more trainers can be fed; the forecast of the first test was 7"),
        (search(0, 4, 0.351)[0], "0 trainers can be fed: a single one reaches 35.1 %; "),
    ],
)
def test_a_search_says_what_it_found(found: Search, text: str) -> None:
    assert str(found).startswith(text)
