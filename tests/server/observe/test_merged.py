"""Merged status: several processes as one server."""

from __future__ import annotations

from typing import Any

import pytest

from infeed.report import ServerReport, TrainerReport
from infeed_server.observe.merged import MergedStatus


def process(cores: int, ranks: dict[int, float], busy: float, **server: float) -> dict[str, Any]:
    """Returns the status of a process with a share of waiting for each rank."""
    report = ServerReport(
        seconds=10.0,
        batches=20,
        bytes=1000,
        transform_seconds=10 * busy,
        no_request_seconds=10 * (1 - busy),
        cpu_seconds=10.0 * cores * busy,
        cores=cores,
    )
    trainers = [
        {"rank": rank, "report": TrainerReport(10.0, 20, 10 * share, streams=1).to_json()}
        for rank, share in ranks.items()
    ]
    job = {"id": "p-1", "world_size": 2, "verdict": {}, "trainers": trainers}
    return {
        "server": {
            "version": "1",
            "uptime_seconds": 5.0,
            "cores": cores,
            "cpu_share": busy,
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
                "totals": {"batches": 100, "bytes": 7},
                "queues": {"queued_requests": 2},
                "jobs": [job] if ranks else [],
            }
        ],
    }


def merged(*documents: dict[str, Any]) -> dict[str, Any]:
    readiness = {"": (True, "fine"), "p": (False, "process 1: cold")}
    return MergedStatus(lambda _: documents).to_json(readiness)


def test_a_stage_that_only_one_process_has_run_is_in_the_totals() -> None:
    idle, busy = process(2, {}, 0.0), process(2, {0: 0.1}, 1.0)
    busy["pipelines"][0]["totals"]["encode_seconds"] = 1.5
    for documents in ((idle, busy), (busy, idle)):
        (pipeline,) = merged(*documents)["pipelines"]
        assert pipeline["totals"] == {"batches": 200, "bytes": 14, "encode_seconds": 1.5}


def test_processes_are_one_server() -> None:
    status = merged(process(2, {0: 0.1}, 1.0), process(2, {1: 0.6}, 0.5, uptime_seconds=9.0))
    server = status["server"]
    assert (server["cores"], server["cpu_share"], server["uptime_seconds"]) == (4, 0.75, 9.0)
    assert (server["peak_memory_bytes"], server["desired_servers"]) == (200, 3)
    assert (server["ready"], server["reason"]) == (True, "fine")
    (pipeline,) = status["pipelines"]
    assert (pipeline["ready"], pipeline["reason"]) == (False, "process 1: cold")
    assert pipeline["totals"] == {"batches": 200, "bytes": 14}
    assert pipeline["queues"] == {"queued_requests": 4}
    report = pipeline["report"]
    assert (report["seconds"], report["batches"], report["cores"]) == (10, 40, 4)
    assert (report["transform_seconds"], report["no_request_seconds"]) == (7.5, 2.5)
    assert report["cpu_share"] == pytest.approx(0.75)


def test_ranks_of_a_job_on_several_processes_are_judged_together() -> None:
    status = merged(process(2, {1: 0.6}, 1.0), process(2, {0: 0.1}, 1.0))
    (job,) = status["pipelines"][0]["jobs"]
    assert [each["rank"] for each in job["trainers"]] == [0, 1]
    assert job["verdict"]["rank"] == 1
    assert job["verdict"]["cause"] == "transforms"
    assert status["verdict"] == job["verdict"]


def test_nothing_to_merge() -> None:
    assert merged()["pipelines"] == []
    assert merged()["verdict"]["level"] == "unknown"
    assert merged(process(1, {}, 0.0))["pipelines"][0]["jobs"] == []


def test_histories_are_added_by_the_second() -> None:
    one = {"at": [10.2, 11.2], "pipelines": {"p": {"rate": [1.0, 2.0], "wait_share": [None, 0.5]}}}
    two = {"at": [11.9, 12.9], "pipelines": {"p": {"rate": [4.0, 8.0], "wait_share": [0.1, 0.2]}}}
    paths: list[str] = []

    def fetch(path: str) -> list[dict[str, Any]]:
        paths.append(path)
        return [one, two]

    assert MergedStatus(fetch).history.to_json(60) == {
        "at": [10.0, 11.0, 12.0],
        "pipelines": {"p": {"rate": [1.0, 6.0, 8.0], "wait_share": [None, 0.5, 0.2]}},
    }
    assert paths == ["/api/v1/history?seconds=60"]


def test_bad_samples_of_all_processes_are_in_the_order_of_time() -> None:
    def fetch(path: str) -> list[dict[str, Any]]:
        assert path == "/api/v1/pipelines/a%2Fb%3F/bad-samples"
        return [
            {"pipeline": "a/b?", "samples": [{"time": "3"}, {"time": "1"}]},
            {"error": "there is no pipeline"},
            {"pipeline": "a/b?", "samples": [{"time": "2"}]},
        ]

    assert MergedStatus(fetch).bad_samples("a/b?") == [{"time": each} for each in "321"]
    assert MergedStatus(lambda _: [{"error": "none"}]).bad_samples("photos") is None
