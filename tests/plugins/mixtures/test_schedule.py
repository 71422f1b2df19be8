"""Tests of `schedule.py`, against counts of one draw at a time."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from infeed_mixtures.schedule import Schedule, integer_weights

BOUND = 1.68
"""Half of the sum of the reciprocal Fibonacci numbers."""


def some_weights(parts: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    kinds = (
        lambda n: rng.randint(1, 9),
        lambda n: rng.randint(1, 10**6),
        lambda n: 2 ** min(n, 22),
        lambda n: 1000 // (n + 1) or 1,
    )
    return [kinds[seed % 4](number) for number in range(parts)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parts", [1, 2, 8, 64, 256])
def test_turns_are_numbered_and_lead_back(parts: int, seed: int) -> None:
    schedule = Schedule(some_weights(parts, seed))
    found, draws = schedule.at(np.arange(3000))
    seen = np.zeros(parts, int)
    for part, draw in zip(found.tolist(), draws.tolist(), strict=True):
        assert draw == seen[part]
        seen[part] += 1
    assert schedule.counts(3000).tolist() == seen.tolist()
    rng = random.Random(seed)
    for top in (10, 30, 52, 62):
        numbers = np.array([rng.randrange(1 << top) for _ in range(50)])
        assert np.array_equal(schedule.numbers(*schedule.at(numbers)), numbers)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("parts", [2, 8, 64, 256])
def test_counts_of_prefixes_are_near_the_exact_shares(parts: int, seed: int) -> None:
    weights = some_weights(parts, seed)
    schedule, total, rng = Schedule(weights), sum(weights), random.Random(seed)
    for end in [*range(50), *(rng.randrange(10**9) for _ in range(40)), 10**9]:
        counts = schedule.counts(end).tolist()
        assert sum(counts) == end
        for count, weight in zip(counts, weights, strict=True):
            assert abs(count * total - end * weight) < BOUND * total
    assert schedule.counts(total).tolist() == weights  # a period is exact


def test_a_part_without_weight_has_no_turn() -> None:
    schedule = Schedule([0, 3, 0, 1])
    assert schedule.counts(400).tolist() == [0, 300, 0, 100]
    assert set(schedule.at(np.arange(400))[0].tolist()) == {1, 3}


def test_weights_are_the_decimals_that_were_written() -> None:
    assert integer_weights([Fraction("0.7"), Fraction("0.1"), Fraction(0)]) == [7, 1, 0]
    assert integer_weights([Fraction("1e-3"), Fraction("2/3")]) == [3, 2000]


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        ([Fraction(0)], "all are 0"),
        ([Fraction(1, 3**20), Fraction(1)], "fewer digits"),
    ],
)
def test_impossible_weights_are_refused(weights: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        integer_weights(weights)
