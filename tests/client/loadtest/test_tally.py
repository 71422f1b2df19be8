"""The audit of a load test: each sample once, over all ranks and lives."""

from __future__ import annotations

from tests.client.loadtest.samples import busy_server, point, steps, tally

from infeed.loadtest import LoadPlan
from infeed.loadtest.audits import audits


def test_steps_that_all_ranks_made_are_counted() -> None:
    made = tally(LoadPlan(trainers=2))
    made.add(0, point(steps([0, 1, 2], 0, 2)))
    made.add(1, point(steps([0, 1], 1, 2)))
    (audit,) = audits(made)
    assert audit.exact, audit.findings()
    assert (audit.outcome.end, audit.batches, audit.total("once")) == (16, 4, 16)


def test_a_batch_that_comes_again_after_a_restart_is_found() -> None:
    made = tally(LoadPlan(trainers=1))
    made.add(0, point(steps([0, 1])))
    made.start(0, 0.5)
    made.add(0, point(steps([1, 2])))
    (audit,) = audits(made)
    assert not audit.exact
    assert audit.outcome.again == ((4, 8),)


def test_independent_jobs_are_audited_alone() -> None:
    made = tally(LoadPlan(trainers=2, independent=True))
    made.add(0, point(steps([0, 1])))
    made.add(1, point(steps([0])))
    found = [(audit.exact, audit.outcome.end, audit.seed) for audit in audits(made)]
    assert found == [(True, 8, 0), (True, 4, 1)]


def test_equal_warnings_of_ranks_are_one_event_of_the_server() -> None:
    made = tally(LoadPlan(trainers=3), addresses={"127.0.0.1:5": "server:7470"})
    for rank, at in ((0, 1.0), (1, 1.5), (0, 9.0)):
        messages = ((at, "127.0.0.1:5 is lost"),)
        made.add(rank, point(steps([0], rank, 3), messages=messages))
    made.events.append((2.0, "rank 1 is killed"))
    assert made.all_events() == [
        (1.0, "ranks 0, 1: server:7470 is lost"),
        (2.0, "rank 1 is killed"),
        (9.0, "rank 0: server:7470 is lost"),
    ]


def test_the_last_report_of_a_server_that_is_gone_counts_once() -> None:
    made = tally(LoadPlan(trainers=1))
    for at in (1.0, 2.0):
        made.add(0, point(steps([]), at, server_reports={"a": busy_server()}))
    made.add(0, point(steps([]), 3.0, server_reports={"a": busy_server(batches=11)}))
    assert [at for at, _ in made.servers["a"]] == [1.0, 3.0]
