"""Figures of a load test, from made-up records."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.client.loadtest.samples import busy_server, point, repeating, steps, tally

from infeed.loadtest import LoadPlan, Tally, Thresholds, check, summarize
from infeed.loadtest.report_text import forecast_lines, text_report
from infeed.loadtest.summary import to_json
from infeed.shared import verdict


def starved(thresholds: Thresholds | None = None) -> Tally:
    """Rank 0 never waits; rank 1 waits half of its time. The warm-up is 0.1 s."""
    made = tally(
        LoadPlan(
            trainers=2,
            step_seconds=0.01,
            duration_seconds=1.0,
            thresholds=thresholds or Thresholds(),
        )
    )
    servers = {"a:1": busy_server()}
    made.add(0, point(steps(list(range(100)), 0, 2), server_reports=servers))
    waits = {"requested_at": np.arange(50) * 0.02, "wait_seconds": 0.01}
    slow = steps(list(range(50)), 1, 2, **waits)
    made.add(1, point(slow, server_reports=servers))
    return made


def test_utilisation_is_compute_over_time_of_the_worst_rank() -> None:
    summary = summarize(starved())
    assert summary.seconds == pytest.approx(0.9)
    assert summary.worst.rank == 1
    assert summary.utilisation == pytest.approx(0.5)
    assert summary.trainers[0].figures.utilisation == pytest.approx(1.0)
    assert summary.figures.utilisation == pytest.approx(135 / 180)
    assert not summary.keeps_utilisation
    slow = summary.trainers[1].figures
    assert (slow.steps, slow.starved_steps) == (45, 45)
    assert slow.wait_p50 == slow.wait_p99 == slow.wait_max == 0.01


def test_the_first_step_of_each_start_counts_nowhere() -> None:
    made = tally(LoadPlan(trainers=1, step_seconds=0.01, warm_up_seconds=0))
    for numbers, began in (([0, 1, 2], 0.0), ([3, 4, 5], 0.5)):
        if began:
            made.start(0, began)
        waits = np.array([9.0, 0.0, 0.0])
        made.add(
            0, point(steps(numbers, wait_seconds=waits, requested_at=began + np.arange(3) * 0.01))
        )
    summary = summarize(made)
    assert (summary.figures.steps, summary.figures.wait_max) == (4, 0.0)
    assert len(summary.trainers[0].first_batch_seconds) == 2


@pytest.fixture
def short_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a verdict rest on the second that a made-up test lasts."""
    monkeypatch.setattr(verdict, "MIN_SECONDS", 0.5)


@pytest.mark.parametrize(
    ("at", "warm_up", "unanswered", "utilisation"),
    [(0.1, 0.0, 0.9, 0.0899), (0.1, 0.5, 0.5, 0.0), (1.5, 0.0, 0.0, 0.9)],
)
def test_a_wait_without_a_batch_counts_up_to_the_end(
    at: float, warm_up: float, unanswered: float, utilisation: float
) -> None:
    made = tally(LoadPlan(trainers=1, step_seconds=0.009, warm_up_seconds=warm_up))
    made.add(0, point(steps(list(range(11)))))
    made.add(0, point(steps([]), unanswered_at=at))
    summary = summarize(made)
    assert summary.figures.unanswered_seconds == pytest.approx(unanswered)
    assert summary.figures.wait_max == pytest.approx(unanswered)
    assert summary.utilisation == pytest.approx(utilisation, abs=0.01)
    made.start(0, 0.2)
    made.add(0, point(steps([]), unanswered_at=0.3))  # for its first batch, which counts nowhere
    assert summarize(made).figures.unanswered_seconds == 0


def test_a_long_wait_without_a_batch_is_noted() -> None:
    made = tally(LoadPlan(trainers=2, step_seconds=0.01, warm_up_seconds=0))
    made.ended_at = 20.0
    for rank, at in ((0, 5.0), (1, 3.0)):
        made.add(rank, point(steps([0, 1, 2], rank, 2), unanswered_at=at))
    expected = "note: at the end, rank 1 had waited 17.00 s for a batch in vain"
    assert expected in text_report(summarize(made), made)


def test_verdict_names_the_worst_rank_and_enough_servers(
    short_verdicts: None,
) -> None:
    summary = summarize(starved())
    assert summary.verdict.rank == 1
    assert (summary.verdict.level, summary.verdict.cause) == (
        "highly input-bound",
        "transforms",
    )
    # 2 ranks of 10 ms take 200 batches/s; the server makes 10.
    assert summary.forecast.demand == pytest.approx(200)
    assert summary.forecast.capacity == pytest.approx(10)
    assert summary.forecast.servers_needed is not None
    assert summary.forecast.servers_needed >= 20
    line = "enough for 0 such trainers; one with steps of 100.0 ms or more would not wait"
    assert line in forecast_lines(summary)[0]


def test_thresholds_are_checked_by_the_worst_rank() -> None:
    limits = Thresholds(0.9, 0.005, 1e6)
    made = starved(limits)
    summary = check(summarize(made), made)
    assert [found.ok for found in summary.checks] == [False, False, False, True]
    assert not summary.ok
    text = text_report(summary, made)
    assert "MISSED: utilisation of the worst trainer, rank 1: 50.0 %" in text
    assert "(rank 1), below the 90 % of MLPerf Storage" in text
    made = starved(Thresholds(0.49, 0.01, 1))
    assert check(summarize(made), made).ok


def test_a_test_without_a_batch_fails() -> None:
    made = tally(LoadPlan(trainers=1))
    made.all_began_at = None
    summary = check(summarize(made), made)
    assert (summary.exact, summary.ok, summary.figures.steps) == (True, False, 0)
    assert "no verdict yet" in text_report(summary, made)
    assert "MISSED: batches: none (at least 1)" in text_report(summary, made)


def test_an_inexact_audit_has_its_likely_reason() -> None:
    made = repeating()
    text = text_report(check(summarize(made), made), made)
    assert "NOT exact" in text
    assert "  likely bad samples, not lost ones: on_error: substitute fills their slots" in text

    made = tally(LoadPlan(trainers=1))
    made.add(0, point(steps([0, 2, 3]), reconnects=2))
    summary = check(summarize(made), made)
    assert not summary.ok
    text = text_report(summary, made)
    assert "  there were 2 lost connections: the events have their times" in text


def test_a_trainer_without_a_step_is_the_worst() -> None:
    made = tally(LoadPlan(trainers=2, step_seconds=0.01, duration_seconds=1))
    made.add(0, point(steps(list(range(50)), 0, 2)))
    summary = summarize(made)
    assert summary.worst.rank == 1
    assert not summary.utilisation
    (row,) = (line for line in text_report(summary, made).splitlines() if line[:2] == "1 ")
    assert row.split() == ["1", "0", *"-----", "none"]


def test_a_bin_of_the_plots_is_longer_than_a_step() -> None:
    made = tally(LoadPlan(trainers=1, step_seconds=3.0, warm_up_seconds=0))
    made.ended_at = 40.0
    times = {"requested_at": np.arange(13) * 3.0, "busy_seconds": 3.0}
    made.add(0, point(steps(list(range(13)), **times), at=40.0))
    series = summarize(made).series
    assert series.bin_seconds == 4
    assert None not in series.utilisation[0][1:-1]
    made = tally(LoadPlan(trainers=1, step_seconds=30.0))
    assert summarize(made).series.bins == 1


def test_json_has_the_figures() -> None:
    made = starved()
    document = json.loads(json.dumps(to_json(check(summarize(made), made), made)))
    assert document["utilisation"] == pytest.approx(0.5)
    assert document["worst_rank"] == 1
    assert document["audit"]["exact"] is True
    assert document["servers"]["a:1"]["memory_bytes"] == 0
    assert document["series"]["servers"]["a:1"]["transform"][-1] == 1.0
    assert document["ok"] is True


def test_throughput_does_not_end_in_a_peak() -> None:
    made = tally(LoadPlan(trainers=1, step_seconds=0.1, warm_up_seconds=0))
    made.ended_at = 4.2
    # The trainer goes on after the end, until it is asked to stop.
    times = {"requested_at": np.arange(60) / 10, "busy_seconds": 0.1}
    made.add(0, point(steps(list(range(60)), **times), at=6.0))
    series = summarize(made).series
    assert series.bins == 4
    assert series.samples_per_second[-1] == pytest.approx(40.0, rel=0.1)


def test_lost_server_is_named_first_and_is_a_failure() -> None:
    made = starved()
    made.add(0, point(steps([]), at=0.9, lost_servers=("a:1",)))
    summary = check(summarize(made), made)
    text = text_report(summary, made)
    assert text.startswith("LOST: a:1 was lost by second 0.9\n")
    assert "MISSED: lost servers: a:1 was lost by second 0.9 (none)" in text
    assert "no forecast: a server was lost" in text
    assert "could make" in text
    (row,) = (line for line in text.splitlines() if line.startswith("a:1 "))
    assert row.endswith(" lost")  # in place of what it could make
    assert not summary.ok
    document = to_json(summary, made)
    assert document["lost_servers"] == {"a:1": pytest.approx(0.9)}
    assert document["servers"]["a:1"]["capacity"] is None
    assert document["forecast"]["capacity"] is None


def test_server_that_came_back_was_lost_too(short_verdicts: None) -> None:
    made = starved()
    made.add(0, point(steps([]), at=0.9, lost_servers=("a:1",)))
    made.add(0, point(steps([]), at=0.95))
    summary = check(summarize(made), made)
    assert summary.checks[0].value == "a:1 was lost by second 0.9 and came back"
    assert not summary.ok
    assert summary.verdict.cause == "transforms"  # of the time since


def test_lost_servers_can_be_allowed() -> None:
    made = starved(Thresholds(allow_lost_servers=True))
    made.add(0, point(steps([]), at=0.9, lost_servers=("a:1",)))
    summary = check(summarize(made), made)
    assert summary.ok
    text = text_report(summary, made)
    assert "ok: lost servers: a:1 was lost by second 0.9 (any, as asked)" in text
