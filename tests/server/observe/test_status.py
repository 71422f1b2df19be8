"""Status: several processes as one server."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from tests.harness.clock import ManualClock

from infeed.shared.report import ServerReport, TrainerReport
from infeed_server.observe.status import Document, Status

PROCESS_IDS = count(1)


def process(cores: int, ranks: dict[int, float], busy: float, **server: float) -> dict[str, Any]:
    """Returns the status of one of two processes, with a share of waiting for each rank."""
    report = ServerReport(
        seconds=10.0,
        batches=20,
        bytes=1000,
        transform_seconds=10 * busy,
        no_request_seconds=10 * (1 - busy),
        cpu_seconds=10.0 * cores * busy,
        cores=cores,
        processes=2,
        process_id=next(PROCESS_IDS),
    )
    trainers = [
        {
            "rank": rank,
            "feed": f"feed-{rank}",
            "peer": f"10.0.0.{rank}:50000",
            "report_age_seconds": 1.0,
            "report": TrainerReport(10.0, 20, 10 * share, streams=1).to_json(),
        }
        for rank, share in ranks.items()
    ]
    job = {"id": "p-7-8x2-0", "world_size": 2, "verdict": {}, "trainers": trainers}
    job["report"] = report.to_json()
    return {
        "server": {
            "version": "1",
            "uptime_seconds": 5.0,
            "cores": cores,
            "cpu_share": busy,
            "memory_bytes": 60,
            "peak_memory_bytes": 100,
            "memory_limit_bytes": 1000,
            "desired_servers": 3,
            **server,
        },
        "pipelines": [
            {
                "name": "p",
                "ready": True,
                "reason": "x",
                "report": {**report.to_json(), "cpu_share": report.cpu_share},
                "totals": {"batches": 100, "samples": 800, "bytes": 7},
                "queues": {"queued_requests": 2},
                "jobs": [job] if ranks else [],
            }
        ],
        "broken": {"q": "no file"},
    }


class Fake:
    """Processes with these documents, and lists of bad samples."""

    def __init__(self, documents: Sequence[Document], bad: list[list[Document]] | None = None):
        self.answers = list(documents)
        self.bad = bad or []

    def documents(self) -> list[Document]:
        return self.answers

    def bad_samples(self, pipeline: str) -> list[list[Document]]:
        assert pipeline == "p"
        return self.bad


def merged(*documents: Document) -> Document:
    readiness = {"": (True, "fine"), "p": (False, "process 1: cold")}
    return Status(Fake(documents)).to_json(readiness)


def test_processes_are_one_server() -> None:
    status = merged(process(2, {0: 0.1}, 1.0), process(2, {1: 0.6}, 0.5, uptime_seconds=9.0))
    server = status["server"]
    assert (server["cores"], server["cpu_share"], server["uptime_seconds"]) == (4, 0.75, 9.0)
    assert (server["memory_bytes"], server["peak_memory_bytes"]) == (120, 200)
    assert (server["ready"], server["reason"]) == (True, "fine")
    (pipeline,) = status["pipelines"]
    assert (pipeline["ready"], pipeline["reason"]) == (False, "process 1: cold")
    assert pipeline["totals"] == {"batches": 200, "samples": 1600, "bytes": 14}
    assert pipeline["queues"] == {"queued_requests": 4}
    report = pipeline["report"]
    assert (report["seconds"], report["batches"], report["cores"]) == (10, 40, 4)
    assert (report["transform_seconds"], report["no_request_seconds"]) == (7.5, 2.5)
    assert report["cpu_share"] == pytest.approx(0.75)
    assert report["processes"] == 1


def test_ranks_of_a_job_on_several_processes_are_judged_together() -> None:
    status = merged(process(2, {1: 0.6}, 1.0), process(2, {0: 0.1}, 1.0))
    (job,) = status["pipelines"][0]["jobs"]
    assert [trainer["rank"] for trainer in job["trainers"]] == [0, 1]
    assert job["verdict"]["rank"] == 1
    assert job["verdict"]["cause"] == "transforms"
    assert status["verdict"] == job["verdict"]


def test_processes_of_one_host_are_one_server_in_the_verdict() -> None:
    # Each rank takes 2 batches/s and would take 5 without waits; the processes make 4 together.
    status = merged(process(2, {0: 0.6}, 1.0), process(2, {1: 0.6}, 1.0))
    (job,) = status["pipelines"][0]["jobs"]
    assert job["verdict"]["servers"] == 3  # and not 5, of processes
    assert "; 3 such servers would be enough" in status["verdict"]["text"]


def test_processes_with_the_ranks_of_a_job_are_one_server() -> None:
    documents = [process(2, {0: 0.6}, 1.0), process(2, {1: 0.6}, 1.0)]
    status = Status(Fake(documents), clock=lambda: 5.0)
    assert status.desired_servers == 0
    status.update()
    assert status.desired_servers == 3  # 10 batches/s, of servers that make 0.85 of 4
    assert status.to_json({})["server"]["desired_servers"] == 3


def test_equal_jobs_on_several_processes_stay_apart() -> None:
    one, two, three = (process(2, ranks, 1.0) for ranks in ({0: 0.1, 1: 0.2}, {0: 0.3}, {0: 0.1}))
    two["pipelines"][0]["jobs"][0]["trainers"][0]["feed"] = "another"
    jobs = merged(one, two, three)["pipelines"][0]["jobs"]
    assert [item["id"] for item in jobs] == ["p-7-8x2-0", "p-7-8x2-1"]
    ranks = [[(trainer["feed"], trainer["rank"]) for trainer in job["trainers"]] for job in jobs]
    assert ranks == [[("feed-0", 0), ("feed-1", 1)], [("another", 0)]]


def test_a_feed_with_several_streams_is_one_trainer() -> None:
    documents = [process(2, {0: 0.1, 1: share}, 1.0) for share in (0.1, 0.6)]
    for age, document in zip((2.0, 0.5), documents, strict=True):
        for trainer in document["pipelines"][0]["jobs"][0]["trainers"]:
            trainer["report_age_seconds"] = age
    silent = process(2, {0: 0.0}, 1.0)
    (stream,) = silent["pipelines"][0]["jobs"][0]["trainers"]
    stream |= {"report": None, "report_age_seconds": None}
    status = Status(Fake([silent, *documents]), clock=lambda: 5.0)
    status.update()
    assert status.trainers == {"p": 2}
    assert status.wait_shares == {"p": pytest.approx(0.6)}
    (job,) = status.to_json({})["pipelines"][0]["jobs"]
    assert [trainer["report_age_seconds"] for trainer in job["trainers"]] == [0.5, 0.5]


def test_last_hundred_bad_samples_of_all_processes_stay() -> None:
    samples = [{"time": f"{n:03}", "sample_id": n, "count": 2} for n in range(160)]
    made = Status(Fake([], [samples[:80], samples[80:], samples[150:]])).bad_samples("p")
    assert made is not None
    assert (len(made), made[0], made[-1]) == (100, {**samples[159], "count": 4}, samples[60])
    assert Status(Fake([])).bad_samples("p") is None


def test_last_source_error_of_all_processes_is_shown() -> None:
    one, other, good = (process(2, {}, 1.0) for _ in range(3))
    one["pipelines"][0]["source_error"] = {"time": "1", "file": "a"}
    other["pipelines"][0]["source_error"] = {"time": "2", "file": "b"}
    assert merged(one, other, good)["pipelines"][0]["source_error"]["file"] == "b"
    assert merged(good)["pipelines"][0]["source_error"] is None


def test_only_a_whole_server_names_missing_ranks() -> None:
    clock = ManualClock()
    documents = [process(2, {0: 0.1}, 1.0), process(2, {}, 1.0)]
    for known, expected in ((documents[:1], False), (documents, True)):
        status = Status(Fake(known), clock)
        for _ in range(2):
            status.update()
            clock.now += 60.0
        (job,) = status.to_json({})["pipelines"][0]["jobs"]
        assert (job["warning"] is not None) == expected
