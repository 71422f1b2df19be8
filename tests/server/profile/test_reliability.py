"""Doubts about profiles: whether repetitions, and stages and the whole run, agree."""

from __future__ import annotations

from infeed_server.profile.clock import Clock
from infeed_server.profile.figures import Cost, Profile, Run, Stage
from infeed_server.profile.forecast import forecast
from infeed_server.profile.reliability import doubts
from infeed_server.profile.timing import median_cost


def found(crop: Cost, run_seconds: float = 1.0) -> list[str]:
    """Returns the doubts about a profile of two stages, whose whole run took so long."""
    profile = Profile(
        "p",
        cores=2,
        batch_size=8,
        stages=[
            Stage("transform", "crop", crop, 8, 8, ordinal=1),
            Stage("encode", "encode", Cost(0.001, 0.0005, spread=0.0001), 8, 8),
        ],
        run=Run(samples=1000, seconds=run_seconds, cpu_seconds=2.0, other_cpu_seconds=0.0),
    )
    return doubts(profile, forecast(profile))


def test_measurements_that_agree_leave_no_doubt() -> None:
    assert found(Cost(0.001, 0.0005, spread=0.0003)) == []


def test_repetitions_that_differ_name_the_stage_that_differs_most() -> None:
    (doubt,) = found(Cost(0.001, 0.0005, spread=0.0009))
    assert "differed by 45% between repetitions, most in 1: crop: 1,000 µs, by 900 µs" in doubt


def test_a_whole_run_that_the_stages_do_not_explain_is_a_doubt() -> None:
    (doubt,) = found(Cost(0.0002, 0.0001))
    assert "forecast +67%" in doubt


def test_the_spread_of_a_cost_is_the_distance_between_the_quartiles() -> None:
    seconds = iter([0.0, 0.1, 0.1, 0.3, 0.3, 0.6])
    elapsed = iter(range(100))
    clock = Clock(
        wall=lambda: float(next(elapsed)), cpu=lambda: next(seconds), total_delay=lambda: 0.0
    )
    cost = median_cost(clock, lambda: 1, 5)
    assert (round(cost.cpu, 6), round(cost.spread, 6)) == (0.2, 0.1)
    assert round(cost.minus(Cost(0.1, 0.1, spread=0.1)).spread, 3) == 0.141
