"""Reports of trainers and servers: both ends of real streams know the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.harness.http_get import fetch
from tests.harness.nursery import Nursery
from tests.harness.server import InfeedServer
from tests.harness.waiting import wait_until

import infeed

PIPELINES = "pipelines: {numbers: {source: {arrays: numbers.npz}, batch: {size: 16}}}\n"


class Rank(threading.Thread):
    """A trainer whose steps begin when the test lets them."""

    def __init__(self, address: str, rank: int) -> None:
        super().__init__(daemon=True)
        self.feed = infeed.connect(address, "numbers", shard=infeed.Shard(rank, 2), epochs=None)
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        for _ in self.feed:
            if self.stopping.wait(0.02):
                return


def get(server: InfeedServer, document: str) -> Any:
    """Returns a document of the API."""
    return fetch(server.http, f"/api/v1/{document}").json


@pytest.fixture
def serve(nursery: Nursery, tmp_path: Path) -> Callable[..., InfeedServer]:
    """`serve(*options)`: a server, to be used as a context manager."""
    np.savez(tmp_path / "numbers.npz", x=np.zeros((640, 64), np.float32))
    definition = tmp_path / "pipelines.yaml"
    definition.write_text(PIPELINES)
    log, http = tmp_path / "log", "127.0.0.1:0"
    return lambda *options: InfeedServer(definition, log, *options, http=http, launch=nursery.start)


@pytest.fixture
def server(serve: Callable[..., InfeedServer]) -> Iterator[InfeedServer]:
    with serve() as running:
        yield running


def test_both_ends_know_the_last_seconds(server: InfeedServer) -> None:
    ranks = [Rank(server.address, rank) for rank in (0, 1)]

    def status() -> Any:
        return get(server, "status")

    def trainers() -> Any:
        return [item for job in status()["pipelines"][0]["jobs"] for item in job["trainers"]]

    try:
        wait_until(
            lambda: sum(bool(item["wait_share"] is not None) for item in trainers()) == 2,
            "both ranks have reported",
        )
        wait_until(
            lambda: (
                all(
                    server_report.worst is not None and server_report.batches
                    for rank in ranks
                    for server_report in rank.feed.stats().server_reports.values()
                )
                and all(rank.feed.stats().server_reports for rank in ranks)
            ),
            "each rank knows the other one",
        )
        wait_until(
            lambda: (
                status()["pipelines"][0]["jobs"][0]["verdict"]["level"] != "unknown"
                and all(rank.feed.stats().assessment.level != "unknown" for rank in ranks)
            ),
            "the reports are enough for a verdict",
        )
        (job,) = status()["pipelines"][0]["jobs"]
        assert [trainer["rank"] for trainer in job["trainers"]] == [0, 1]
        assert job["world_size"] == 2
        assert job["verdict"]["level"].endswith("input-bound")
        for rank in ranks:
            before = rank.feed.delivered
            stats = rank.feed.stats()
            assert list(stats.server_reports) == [server.address]
            assert stats.assessment.world_size == 2
            assert stats.verdict == str(stats.assessment)
            assert before <= stats.report.total_steps <= rank.feed.delivered
    finally:
        for rank in ranks:
            rank.stopping.set()
            rank.join()
            rank.feed.close()
    wait_until(lambda: not trainers(), "both trainers are gone")
