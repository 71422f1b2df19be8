"""Figures of a load test, from made-up records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.plugins.tools.loadtest.samples import busy_server, point, steps, tally

from infeed_tools.loadtest.figures import last_report
from infeed_tools.loadtest.plan import LoadPlan
from infeed_tools.loadtest.report import text_report
from infeed_tools.loadtest.summary import summarize, to_json
from infeed_tools.loadtest.tally import Tally


def starved(**thresholds: Any) -> Tally:
    """Rank 0 never waits; rank 1 waits half of its time. The warm-up is 0.1 s."""
    made = tally(LoadPlan(trainers=2, step_ms=10, duration=1, **thresholds))
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
    slow = summary.trainers[1].figures
    assert (slow.steps, slow.starved_steps) == (45, 45)
    assert slow.wait_p50 == slow.wait_p99 == slow.wait_max == 0.01


@pytest.mark.parametrize(
    ("at", "warm_up", "unanswered", "utilisation"),
    [(0.1, 0.0, 1.9, 0.0899 / 2), (0.1, 0.5, 1.5, 0.0), (2.5, 0.0, 0.0, 0.9)],
)
def test_a_wait_without_a_batch_counts_up_to_the_end(
    at: float, warm_up: float, unanswered: float, utilisation: float
) -> None:
    made = tally(LoadPlan(trainers=1, step_ms=9, warm_up=warm_up))
    made.add(0, point(steps(list(range(11)))))
    made.add(0, point(steps([]), unanswered_at=at))
    made.ended_at = 2.0
    summary = summarize(made)
    assert ("had waited" in text_report(summary)) == (unanswered > 1)
    assert summary.figures.unanswered_seconds == pytest.approx(unanswered)
    assert summary.figures.wait_max == pytest.approx(unanswered)
    assert summary.utilisation == pytest.approx(utilisation, abs=0.01)


def test_thresholds_are_checked_by_the_worst_rank() -> None:
    limits = {"min_utilisation": 0.9, "max_wait_p99_ms": 5, "min_samples_per_second": 1e6}
    summary = summarize(starved(**limits))
    assert [found.ok for found in summary.checks] == [False, False, False, True]
    assert not summary.ok
    text = text_report(summary)
    assert "MISSED: utilisation of the worst trainer, rank 1: 50.0 %" in text
    assert "(rank 1), below the 90% of MLPerf Storage" in text
    assert summarize(starved(min_utilisation=0.49, max_wait_p99_ms=10)).ok


def test_a_test_without_a_batch_fails() -> None:
    made = tally(LoadPlan(trainers=1))
    made.all_began_at = None
    summary = summarize(made)
    assert (summary.exact, summary.ok, summary.figures.steps) == (True, False, 0)
    assert "no verdict yet" in text_report(summary)
    assert "MISSED: batches: none (at least 1)" in text_report(summary)
    assert "nothing was measured: 1 of 1 trainers had no batch" in text_report(summary)


def test_lost_server_is_named_first_and_is_a_failure() -> None:
    made = starved()
    made.add(0, point(steps([]), at=0.9, lost_servers=("a:1",)))
    summary = summarize(made)
    text = text_report(summary)
    assert text.startswith("LOST: a:1 was lost by second 0.9\n")
    assert "MISSED: lost servers: a:1 was lost by second 0.9 (none)" in text
    (row,) = (line for line in text.splitlines() if line.startswith("a:1 "))
    assert row.endswith(" lost")
    assert not summary.ok
    document = to_json(summary)
    assert document["lost_servers"] == {"a:1": pytest.approx(0.9)}


def test_lost_servers_can_be_allowed() -> None:
    made = starved(allow_lost_servers=True)
    made.add(0, point(steps([]), at=0.9, lost_servers=("a:1",)))
    summary = summarize(made)
    assert summary.ok
    assert "ok: lost servers: a:1 was lost by second 0.9 (any, as allowed)" in text_report(summary)


def test_processes_behind_one_address_are_one_server() -> None:
    reports = [
        (at + process / 10, busy_server(processes=2, process_id=process, memory_bytes=100))
        for at in (1.0, 2.0, 3.0)
        for process in (1, 2)
    ]
    merged = last_report(reports)
    assert (merged.seconds, merged.batches, merged.cores) == (1.0, 20, 2.0)
    assert merged.memory_bytes == 200
    # Process 3 has replaced process 2.
    reports += [(9.0, busy_server(processes=2, process_id=number)) for number in (1, 3)]
    assert last_report(reports).memory_bytes == 0


# --- audits and events ---


def test_steps_that_all_ranks_made_are_counted() -> None:
    made = tally(LoadPlan(trainers=2))
    made.add(0, point(steps([0, 1, 2], 0, 2)))
    made.add(1, point(steps([0, 1], 1, 2)))
    (audit,) = summarize(made).audits
    assert audit.exact, audit.findings()
    assert (audit.outcome.end, audit.batches, audit.total("once")) == (16, 4, 16)


def test_a_batch_that_comes_again_is_found() -> None:
    made = tally(LoadPlan(trainers=1))
    made.add(0, point(steps([0, 1])))
    made.add(0, point(steps([1, 2])))
    (audit,) = summarize(made).audits
    assert not audit.exact
    assert audit.outcome.again == ((4, 8),)
