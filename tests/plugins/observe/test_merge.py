"""Several processes as one server: their views are merged and judged."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from tests.harness.clock import ManualClock
from tests.plugins.observe.doubles import job_view, trainer_view

from infeed.shared.report import ServerReport
from infeed_observe.merge import merge_bad_samples, merge_views
from infeed_observe.status import Status
from infeed_observe.views import Document, PipelineView, ProcessView, TrainerView
from infeed_server.serving.health import Readiness

PROCESS_IDS = count(1)


def process(*trainers: TrainerView, busy: float = 1.0, **server: float) -> ProcessView:
    """Returns the view of one of two processes with two cores each."""
    report = ServerReport(
        seconds=10.0,
        batches=20,
        bytes=1000,
        transform_seconds=10 * busy,
        no_request_seconds=10 * (1 - busy),
        cpu_seconds=20.0 * busy,
        cores=2,
        processes=2,
        process_id=next(PROCESS_IDS),
    )
    known: Document = {
        "version": "1",
        "uptime_seconds": 5.0,
        "cores": 2,
        "cpu_share": busy,
        "memory_bytes": 60,
        "peak_memory_bytes": 100,
        "memory_limit_bytes": 1000,
        **server,
    }
    jobs = [job_view(0, *trainers, report=report)] if trainers else []
    totals = {"batches": 100.0, "samples": 800.0, "bytes": 7.0}
    part = PipelineView("p", {"seed": 7}, report, jobs, totals, None, {"queued_requests": 2})
    return ProcessView(known, [part], {"q": "no file"})


def documents(*views: ProcessView) -> Document:
    """Returns the merged status of processes, each sent as JSON."""
    readiness = {"": Readiness(True, "fine"), "p": Readiness(False, "process 1: cold")}
    sent = [Status().to_json(view, {}) for view in views]
    return Status().to_json(merge_views([*map(ProcessView.from_json, sent)]), readiness)


def test_processes_are_one_server() -> None:
    one, two = process(trainer_view(0, 0.1)), process(trainer_view(1, 0.6), busy=0.5)
    two.server["uptime_seconds"] = 9.0
    status = documents(one, two)
    server = status["server"]
    assert (server["cores"], server["cpu_share"], server["uptime_seconds"]) == (4, 0.75, 9.0)
    assert (server["memory_bytes"], server["peak_memory_bytes"]) == (120, 200)
    assert (server["ready"], server["reason"]) == (True, "fine")
    assert status["broken"] == {"q": "no file"}
    (pipeline,) = status["pipelines"]
    assert (pipeline["ready"], pipeline["reason"]) == (False, "process 1: cold")
    assert pipeline["seed"] == 7
    assert pipeline["totals"] == {"batches": 200, "samples": 1600, "bytes": 14}
    assert pipeline["queues"] == {"queued_requests": 4}
    report = pipeline["report"]
    assert (report["seconds"], report["batches"], report["cores"]) == (10, 40, 4)
    assert (report["transform_seconds"], report["no_request_seconds"]) == (7.5, 2.5)
    assert report["cpu_share"] == pytest.approx(0.75)
    assert report["processes"] == 1


def test_ranks_on_several_processes_are_judged_together() -> None:
    # Each rank takes 2 batches/s and would take 5 without waits; the processes make 4 together.
    views = [process(trainer_view(1, 0.6)), process(trainer_view(0, 0.6))]
    status = documents(*views)
    (job,) = status["pipelines"][0]["jobs"]
    assert [trainer["rank"] for trainer in job["trainers"]] == [0, 1]
    assert job["verdict"]["cause"] == "transforms"
    assert job["verdict"]["servers"] == 3  # not 5, which counts processes
    assert status["verdict"] == job["verdict"]
    assert "; 3 such servers would be enough" in status["verdict"]["text"]
    judged = Status(clock=lambda: 5.0)
    assert judged.desired_servers == 0
    judged.update(view := merge_views(views))
    assert judged.desired_servers == 3  # 10 batches/s from servers that make 0.85 of 4
    assert judged.to_json(view, {})["server"]["desired_servers"] == 3


def test_equal_jobs_on_several_processes_stay_apart() -> None:
    merged = merge_views(
        [
            process(trainer_view(0, 0.1), trainer_view(1, 0.2)),
            process(trainer_view(0, 0.3, feed="another")),
            process(trainer_view(0, 0.1)),
        ]
    )
    jobs = merged.pipelines[0].jobs
    assert {job.id: [(one.feed, one.rank) for one in job.trainers] for job in jobs} == {
        "p-7-8x2-0": [("feed-0", 0), ("feed-1", 1)],
        "p-7-8x2-1": [("another", 0)],
    }


def test_a_feed_with_several_streams_is_one_trainer() -> None:
    views = [
        process(*(trainer_view(rank, share, report_age_seconds=age) for rank in (0, 1)))
        for share, age in ((0.1, 2.0), (0.6, 0.5))
    ]
    merged = merge_views([process(trainer_view(0)), *views])
    status = Status(clock=lambda: 5.0)
    status.update(merged)
    assert status.pipelines["p"].trainers == 2
    assert status.pipelines["p"].worst_wait == pytest.approx(0.6)
    (job,) = merged.pipelines[0].jobs
    assert [trainer.report_age_seconds for trainer in job.trainers] == [0.5, 0.5]


def test_last_hundred_bad_samples_of_all_processes_stay() -> None:
    samples = [{"time": f"{n:03}", "sample_id": n, "count": 2} for n in range(160)]
    made = merge_bad_samples([samples[:80], samples[80:], samples[150:]])
    assert (len(made), made[0], made[-1]) == (100, {**samples[159], "count": 4}, samples[60])


def test_last_source_error_of_all_processes_is_shown() -> None:
    def with_error(error: Any) -> ProcessView:
        view = process()
        return replace(view, pipelines=[replace(view.pipelines[0], source_error=error)])

    one, other = ({"time": f"{n}", "file": f"{n}"} for n in (1, 2))
    views = [*map(with_error, (one, other, None))]
    assert merge_views(views).pipelines[0].source_error == other
    assert merge_views(views[2:]).pipelines[0].source_error is None


def test_only_a_whole_server_names_missing_ranks() -> None:
    clock = ManualClock()
    views = [process(trainer_view(0, 0.1)), process()]
    for known, expected in ((views[:1], False), (views, True)):
        status, view = Status(clock), merge_views(known)
        for _ in range(2):
            status.update(view)
            clock.now += 60.0
        (job,) = status.to_json(view, {})["pipelines"][0]["jobs"]
        assert (job["warning"] is not None) == expected
