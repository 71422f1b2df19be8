"""Plans of load tests: what is refused, and how faults are written."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.loadtest import Kill, LoadPlan, Stall, Thresholds
from infeed.shared.errors import InvalidRequestError


def test_faults_are_parsed() -> None:
    assert Stall.parse("2@10:5.5") == Stall(2, 10.0, 5.5)
    assert Kill.parse("0@3") == Kill(0, 3.0)


@pytest.mark.parametrize("text", ["", "2", "2@", "@3", "2@x", "2@1:", "a@1:2", "2@1.2.3:4"])
def test_a_wrong_fault_is_named(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="--stall"):
        Stall.parse(text)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"trainers": 0}, "--trainers"),
        ({"step_seconds": -1}, "step"),
        ({"step_seconds": float("nan")}, "step"),
        ({"duration_seconds": 0}, "--duration"),
        ({"duration_seconds": 5, "warm_up_seconds": 5}, "--warm-up 5"),
        ({"steps": 1}, "--steps"),
        ({"kills": (Kill(4, 1.0),)}, "rank 4 is out of range"),
        ({"step_seconds": 0, "thresholds": Thresholds(0.9)}, "--min-utilisation needs --step-ms"),
        ({"seed": -1}, "seed must be from 0"),
        ({"batch_size": 0}, "batch_size must be from 1"),
        ({"prefetch_batches": 1}, "prefetch_batches must be from 2"),
        ({"rtt_seconds": 10.1}, "--rtt-ms must be at most 10000, not 10100"),
        ({"jitter_seconds": 1e7}, "--jitter-ms must be at most 10000"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        LoadPlan(**options)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, 90, float("nan")])
def test_a_utilisation_that_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(InvalidRequestError, match="--min-utilisation"):
        Thresholds(share)


def test_a_tenth_of_the_duration_is_warm_up() -> None:
    assert LoadPlan(duration_seconds=20).warm_up == 2
    assert LoadPlan(duration_seconds=20, warm_up_seconds=0).warm_up == 0
    assert LoadPlan(steps=5).warm_up == 0
