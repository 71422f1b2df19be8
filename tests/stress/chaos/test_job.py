"""Sample counts of the chaos runs."""

from __future__ import annotations

import pytest
from tests.stress.chaos.job import Audit, audit
from tests.stress.chaos.trainer import Step

COUNT = 6


def step(start: int, ids: list[int], mask: list[bool] | None = None) -> Step:
    samples = [f"sample {index}" for index in ids]
    return Step(start, ids, mask or [True] * len(ids), samples, "digest", {}, 0.0)


EPOCHS = [step(0, [3, 1, 2, 0]), step(4, [5, 4, 0, 1]), step(8, [2, 3, 5, 4])]


@pytest.mark.parametrize(
    ("steps", "epochs", "expected", "exact"),
    [
        (EPOCHS, 2, Audit(2, 12, 0, 0), True),
        (EPOCHS[:2], 1, Audit(1, 6, 0, 0), True),
        ([*EPOCHS, EPOCHS[1]], 2, Audit(2, 16, 0, 4), False),
        (EPOCHS[:2], 2, Audit(2, 8, 4, 0), False),
        ([*EPOCHS[:2], step(8, [2, 3, 5, 5])], 2, Audit(2, 12, 1, 1), False),
        ([*EPOCHS[:2], step(8, [2, 3, 5, -1], [True] * 3 + [False])], 2, Audit(2, 11, 1, 0), False),
        ([], 0, Audit(0, 0, 0, 0), False),
    ],
)
def test_lost_and_repeated_samples_are_counted(
    steps: list[Step], epochs: int, expected: Audit, exact: bool
) -> None:
    found = audit(steps, COUNT, epochs)
    assert (found, found.exact) == (expected, exact)
