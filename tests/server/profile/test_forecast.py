"""Forecasts: rates, limits and servers from the figures of a profile, without measuring."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from infeed_server.profile.figures import Cost, Kind, Profile, Run, Stage
from infeed_server.profile.forecast import (
    Forecast,
    fleet,
    forecast,
    rate_beside_others,
    rate_of_run,
)


def stage(kind: Kind, cpu_us: float, elapsed_us: float | None = None, **options: object) -> Stage:
    """Returns a stage; without `elapsed_us` it keeps 4 cores busy."""
    elapsed = cpu_us / 4 if elapsed_us is None else elapsed_us
    made = Stage(kind, kind, Cost(cpu_us / 1e6, elapsed / 1e6), 1000, 2000)
    return replace(made, **options)  # type: ignore[arg-type]


def profile_of(*stages: Stage, run: Run | None = None) -> Profile:
    return Profile(
        "p",
        cores=4,
        batch_size=10,
        stages=[*stages, stage("encode", 0)],
        wire_bytes=1000.0,
        finished_bytes=4000.0,
        run=run,
    )


def made(profile: Profile) -> Forecast:
    result = forecast(profile)
    assert result is not None
    return result


def test_cores_over_the_sum_of_cpu_time_is_the_rate() -> None:
    result = made(profile_of(stage("read", 100), stage("transform", 1800), stage("batch", 100)))
    assert result.samples == pytest.approx(2000)
    assert result.batches == pytest.approx(200)
    assert (result.limit, result.wire_bytes) == ("cpu", pytest.approx(2e6))


def test_finish_transforms_count_only_where_they_run_at_the_server() -> None:
    result = made(profile_of(stage("transform", 2000), stage("finish", 2000)))
    assert result.samples == pytest.approx(2000)
    assert result.finished_samples == pytest.approx(1000)
    assert result.finished_bytes == pytest.approx(4e6)


def test_slow_reading_is_the_limit() -> None:
    result = made(profile_of(stage("read", 100, elapsed_us=1000), stage("transform", 1000)))
    assert (result.limit, result.samples) == ("read", pytest.approx(1000))
    assert result.limits["cpu"] == pytest.approx(4e6 / 1100)


def test_reading_that_fills_the_cores_is_no_limit_of_its_own() -> None:
    result = made(profile_of(stage("read", 3000), stage("transform", 1000)))
    assert (result.limit, result.samples) == ("cpu", pytest.approx(1000))
    assert "read" not in result.limits


def test_reading_that_waited_for_a_core_is_no_limit() -> None:
    slow = stage("read", 100, cost=Cost(100e-6, 1000e-6, delay=900e-6))
    assert made(profile_of(slow)).limit == "cpu"
    slept = stage("read", 100, cost=Cost(100e-6, 1000e-6, delay=100e-6))
    assert made(profile_of(slept)).limit == "read"


def test_python_that_waited_for_a_core_counts_with_its_cpu_time() -> None:
    cost = Cost(500e-6, 900e-6, delay=800e-6)
    result = made(profile_of(stage("transform", 500, cost=cost, runs_python=True)))
    assert (result.limit, result.samples) == ("python", pytest.approx(2000))


def test_a_function_in_python_uses_one_core() -> None:
    result = made(profile_of(stage("transform", 500, elapsed_us=500, runs_python=True)))
    assert (result.limit, result.samples) == ("python", pytest.approx(2000))


def test_stages_before_cache_count_in_the_first_epoch_alone() -> None:
    result = made(profile_of(stage("read", 900, cached=True), stage("transform", 100)))
    assert result.cpu_per_sample == pytest.approx(1e-4)
    assert result.first_epoch_cpu == pytest.approx(1e-3)


def test_run_with_fewer_cores_is_forecast_for_those() -> None:
    run = Run(samples=100, seconds=1, cpu_seconds=1, other_cpu_seconds=3)
    result = made(profile_of(stage("read", 900, cached=True), stage("transform", 100)))
    assert rate_of_run(result, run) == pytest.approx(1000), "it has run as in the first epoch"
    reading = made(profile_of(stage("read", 100, elapsed_us=5000)))
    assert rate_of_run(reading, run) == pytest.approx(200)


def test_no_forecast_before_all_stages_are_measured() -> None:
    assert forecast(Profile("p", cores=4, stages=[stage("read", 100)])) is None
    assert forecast(Profile("p", cores=4)) is None


def test_dataset_is_forecast_from_its_run() -> None:
    run = Run(samples=1000, seconds=2, cpu_seconds=2, other_cpu_seconds=2, delay_seconds=3)
    result = made(Profile("p", cores=2, batch_size=10, run=run))
    assert (result.limit, result.samples) == ("cpu", pytest.approx(1000))
    idle = replace(run, delay_seconds=0.0)
    result = made(Profile("p", cores=2, batch_size=10, run=idle))
    assert (result.limit, result.samples) == ("read", pytest.approx(500))


@pytest.mark.parametrize(("trainers", "servers", "utilisation"), [(1, 1, 0.5), (5, 3, 5 / 6)])
def test_fleet_is_the_demand_over_the_rate_rounded_up(
    trainers: int, servers: int, utilisation: float
) -> None:
    profile = profile_of(stage("transform", 2000))
    result = fleet(made(profile), profile, trainers=trainers, step_seconds=0.01)
    assert result.samples == pytest.approx(1000 * trainers)
    assert (result.servers, result.utilisation) == (servers, pytest.approx(utilisation))
    assert result.bytes_per_server == pytest.approx(1e6 * trainers / servers)


def test_cores_of_other_processes_are_not_promised() -> None:
    run = Run(samples=1000, seconds=10.0, cpu_seconds=2.0, other_cpu_seconds=30.0)
    result = made(profile_of(stage("transform", 2000), run=run))
    assert result.samples == pytest.approx(2000)
    assert rate_beside_others(result, run, 4) == pytest.approx(500)
    assert rate_beside_others(result, replace(run, other_cpu_seconds=50.0), 4) == 0
    slow = made(profile_of(stage("read", 100, elapsed_us=10_000), run=run))
    assert rate_beside_others(slow, run, 4) == pytest.approx(100)


def test_run_without_measurable_cpu_time_has_a_finite_rate() -> None:
    profile = replace(profile_of(), stages=[], run=Run(100, 0.5, 0.0, 0.0))
    result = made(profile)
    assert (result.limits["cpu"], result.samples) == (1e12, pytest.approx(200))
    assert json.dumps(asdict(result), allow_nan=False)


def test_fleet_for_batches_of_unknown_size_is_one_server() -> None:
    profile = replace(profile_of(stage("read", 100)), batch_size=0)
    needed = fleet(made(profile), profile, trainers=8, step_seconds=0.1)
    assert (needed.servers, needed.utilisation) == (1, 0)
