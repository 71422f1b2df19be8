"""Forecasts: rates, limits and servers from the run of a profile, without measuring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infeed.shared.report import ServerReport
from infeed_server.profile.figures import Cost, Profile, Stage
from infeed_server.profile.forecast import Forecast, doubt, fleet, forecast

RUN = ServerReport(
    seconds=2.0,
    batches=200,
    transform_seconds=2.0,
    cpu_seconds=8.0,
    cores=4.0,
    available_cores=4.0,
)
"""100 batches/s, with all of four cores."""


def made(**changes: float) -> Forecast:
    profile = Profile("p", 4, batch_size=10, wire_bytes=1000.0, run=replace(RUN, **changes))
    result = forecast(profile)
    assert result is not None
    return result


def test_run_with_all_cores_is_the_forecast() -> None:
    result = made()
    assert (result.batches, result.samples, result.limit) == (100.0, 1000.0, "cpu")
    assert result.wire_bytes == 1e6


def test_cores_that_other_processes_had_are_added() -> None:
    result = made(cpu_seconds=2.0, available_cores=1.0)
    assert (result.batches, result.limit) == (pytest.approx(400.0), "cpu")


def test_source_limits_what_more_cores_can_do() -> None:
    result = made(cpu_seconds=2.0, available_cores=1.0, source_seconds=1.0, transform_seconds=1.0)
    assert (result.batches, result.limit) == (pytest.approx(200.0), "read")


@pytest.mark.parametrize(("source", "limit"), [(1.8, "read"), (0.0, "transforms")])
def test_run_that_waits_is_the_forecast(source: float, limit: str) -> None:
    result = made(cpu_seconds=2.0, source_seconds=source, transform_seconds=2.0 - source)
    assert (result.batches, result.limit) == (pytest.approx(100.0), limit)


def test_run_without_a_batch_has_no_forecast() -> None:
    assert forecast(Profile("p", 4)) is None
    assert forecast(Profile("p", 4, run=replace(RUN, batches=0))) is None


@pytest.mark.parametrize(("trainers", "servers", "utilisation"), [(1, 1, 0.5), (5, 3, 5 / 6)])
def test_servers_are_the_demand_over_the_rate(
    trainers: int, servers: int, utilisation: float
) -> None:
    result = fleet(made(), trainers, 0.02)
    assert result.samples == pytest.approx(500 * trainers)
    assert (result.servers, result.utilisation) == (servers, pytest.approx(utilisation))


@pytest.mark.parametrize(("cpu", "is_doubted"), [(0.003, False), (0.006, True), (0.002, True)])
def test_stages_far_from_the_run_are_doubted(cpu: float, is_doubted: bool) -> None:
    stage = Stage("transform", "crop", Cost(cpu, cpu), 8, 8)
    profile = Profile("p", 4, batch_size=10, stages=[stage], run=RUN)  # 4,000 µs for a sample
    assert bool(doubt(profile)) is is_doubted
