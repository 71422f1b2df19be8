"""Plans of load tests: options that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.shared.errors import InvalidRequestError
from infeed_tools.loadtest.plan import LoadPlan


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"trainers": 0}, "--trainers must be from 1 to 1024, not 0"),
        ({"step_ms": -1}, "--step-ms"),
        ({"step_ms": float("nan")}, "--step-ms"),
        ({"duration": 0}, "--duration"),
        ({"duration": 5, "warm_up": 5}, "--warm-up 5"),
        ({"steps": 1}, "--steps"),
        ({"step_ms": 0, "min_utilisation": 0.9}, "--min-utilisation needs --step-ms"),
        ({"min_utilisation": 90}, "--min-utilisation must be from 0.001 to 1"),
        ({"seed": -1}, "--seed must be from 0"),
        ({"batch_size": 0}, "--batch-size must be from 1"),
        ({"prefetch_batches": 1}, "--prefetch-batches must be from 2"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        LoadPlan(**options)


def test_a_tenth_of_the_duration_is_warm_up() -> None:
    assert LoadPlan(duration=20).warm_up_seconds == 2
    assert LoadPlan(duration=20, warm_up=0).warm_up_seconds == 0
    assert LoadPlan(steps=5).warm_up_seconds == 0
