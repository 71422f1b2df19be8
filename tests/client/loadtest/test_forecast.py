"""The forecast of what servers can feed, also on a machine that others use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.client.loadtest.samples import busy_server, point, steps, tally

from infeed.loadtest import LoadPlan, Summary, summarize
from infeed.loadtest.forecast import Forecast
from infeed.loadtest.report_text import forecast_lines, notes, text_report


def with_server(address: str = "127.0.0.1:1", **values: Any) -> Summary:
    """Returns a test of one trainer that takes 10 batches/s, and 20 without waits."""
    made = tally(LoadPlan(trainers=1, step_seconds=0.05, warm_up_seconds=0.0))
    figures = {
        "requested_at": np.arange(10) / 10,
        "wait_seconds": 0.05,
        "busy_seconds": 0.05,
    }
    idle = {"transform_seconds": 0.25, "no_request_seconds": 0.75, "cpu_seconds": 0.5}
    for at, cpu in ((0.0, 0.0), (0.95, 0.475)):
        made.add(0, point(steps([], 0), at, cpu_seconds=cpu))
    server = busy_server(**{"cores": 2.0, **idle, **values})
    made.add(0, point(steps(list(range(10)), **figures), 0.96, server_reports={address: server}))
    return summarize(made)


def test_forecast_leaves_out_the_processors_of_other_processes() -> None:
    assert with_server("a:1").forecast.capacity == pytest.approx(40.0)
    assert with_server("a:1", available_cores=1.0).forecast.capacity == pytest.approx(20.0)


def test_forecast_of_a_lower_utilisation_is_of_more_trainers() -> None:
    forecast = with_server("a:1").forecast
    assert (forecast.demand, forecast.max_trainers) == (pytest.approx(20.0), 2)
    assert "40.0: enough for 2 such trainers" in forecast_lines(with_server("a:1"))[0]
    assert forecast.trainers_at(0.5, 1) == 4


def test_servers_are_enough_while_windows_fill() -> None:
    made = tally(LoadPlan(trainers=1, step_seconds=0.2, warm_up_seconds=0.0))
    # 4.9 of at most 5 steps a second: with a wait of 1 %, as on any busy machine.
    waits, busy = np.full(5, 0.002), np.full(5, 0.2)
    figures = {"requested_at": np.arange(5) / 5, "wait_seconds": waits, "busy_seconds": busy}
    # The server makes 10 batches/s all the time, of which half fill the window.
    made.add(0, point(steps(list(range(5)), **figures), 1.0, server_reports={"a:1": busy_server()}))
    summary = summarize(made)
    assert summary.forecast.demand == pytest.approx(5.0, rel=0.1)
    assert (summary.forecast.servers, summary.forecast.max_trainers) == (1, 2)
    assert summary.forecast.servers_needed == 1
    assert "would be enough" not in text_report(summary, made)


def test_notes_name_the_processors_of_other_processes() -> None:
    made = tally(LoadPlan(trainers=1))
    summary = with_server("a:1", available_cores=0.75)
    (note,) = (line for line in notes(summary, made) if "other processes" in line)
    assert note.startswith("note: other processes used 1.2 of the 2 processors of a:1")
    trainers = with_server(available_cores=1.5)  # the trainers used the rest
    assert not [line for line in notes(trainers, made) if "other processes" in line]


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({}, "enough for 3 such trainers"),
        ({"max_trainers": 1}, "enough for 1 such trainer"),
        ({"capacity": 100.0}, "3 such servers would be enough for these"),
    ],
)
def test_servers_are_advised_where_trainers_need_them(changes: dict[str, Any], end: str) -> None:
    forecast = Forecast(demand=119.7, capacity=129.0, servers=2, servers_needed=3, max_trainers=3)
    summary = replace(with_server("a:1"), forecast=replace(forecast, **changes))
    (line,) = forecast_lines(summary)
    assert line.endswith(end)


def test_what_trainers_take_without_waits_can_be_made() -> None:
    made = tally(LoadPlan(trainers=2, step_seconds=0.01, warm_up_seconds=0.0))
    # By its busy processors, the server could make 75 batches/s.
    busy = busy_server(batches=75, seconds=1.0)
    for rank in range(2):
        made.add(rank, point(steps(list(range(100)), rank, 2), server_reports={"a:1": busy}))
    forecast = summarize(made).forecast
    assert forecast.demand == forecast.capacity == pytest.approx(200)
