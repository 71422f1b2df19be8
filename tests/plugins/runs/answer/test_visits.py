"""Visits of a sample: the inverse of what positions have."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest

from infeed_runs.answer.visits import visits_of
from infeed_server.order import Removed, RunOrder, SampleOrder


def check(run: RunOrder, epochs: int, samples: Any) -> None:
    """Compares the visits of samples with the positions of these epochs."""
    slots = run.slots(0, run.position(epochs, 0))
    for sample in samples:
        positions = np.flatnonzero(slots.index == sample)
        expected = [*zip(slots.epoch[positions].tolist(), positions.tolist(), strict=True)]
        assert [*chain.from_iterable(visits_of(run, sample, epochs))] == expected


def test_visits_of_a_plain_order_with_substitutes() -> None:
    order = SampleOrder(100_000, 3, "global", removed=Removed(np.arange(0, 600, 2)))
    run = RunOrder.of(order).without(np.array([5, 9]))
    assert not np.isin(run.slots(0, 200_000).index, [5, 9, *range(0, 600, 2)]).any()
    check(run, 2, (0, 1, 5, 9, 77, 99_999))


@pytest.mark.parametrize("mode", ["global", "window", "none", "stable"])
@pytest.mark.parametrize("shrinks", [False, True])
def test_visits_of_a_run_of_many_parts(mode: Any, shrinks: bool) -> None:
    order = SampleOrder(20, 3, mode, 4, 8)
    run = RunOrder.of(order)
    gone = Removed(np.array([2, 9]), shrinks=shrinks)
    for start, changes, skipped in (
        (7, {"removed": gone}, 0),
        (30, {"count": 33}, 9),
        (33, {"seed": 4}, 3),
        (90, {"removed": Removed(np.array([2, 9, 30]), shrinks=shrinks)}, 40),
    ):
        order = replace(order, **changes)
        run = run.extended(start, order, skipped)
    check(run, 7, range(33))
