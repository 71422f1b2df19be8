"""Desired servers, alone and as input to the autoscaler of a simulated fleet."""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import replace

import pytest

from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.shared.verdict import judge
from infeed_observe.desired_servers import (
    UTILISATION,
    Demand,
    DesiredServers,
    JobVerdict,
    enough_in_use,
)

START_UP_SECONDS = 60
SYNC_SECONDS = 15


def report(rate: float, cpu_share: float) -> ServerReport:
    """Returns the report of a server with four cores that sends `rate` batches a second."""
    return ServerReport(
        seconds=10.0,
        batches=round(10 * rate),
        transform_seconds=10 * cpu_share,
        no_request_seconds=10 * (1 - cpu_share),
        cpu_seconds=40 * cpu_share,
        cores=4.0,
    )


def jobs(**rates: float) -> dict[str, Demand]:
    """Returns the demands of one job per pipeline."""
    return {f"{pipeline}-job": Demand(pipeline, rate) for pipeline, rate in rates.items()}


P = report(5.0, 0.5)
"""The report of a server that makes at most 10 batches/s."""


@pytest.mark.parametrize(
    ("demands", "reports", "value"),
    [
        ({"p": 50.0}, {"p": P}, 6),  # 5 / 0.85
        ({"p": 17.0, "q": 170.0}, {"p": P, "q": report(10.0, 0.1)}, 4),
        ({"p": 50.0}, {"p": replace(P, available_cores=2.0)}, 6),  # others use two of the four
        ({"p": 1e308, "q": 1e308}, {name: report(0.5, 0.9) for name in "pq"}, 1000),
        ({}, {"p": P}, 0),
        ({"p": 10.0}, {"p": report(0.0, 0.0)}, 0),
        ({"p": float("inf")}, {"p": P}, 0),
        ({"p": 50.0}, {"p": replace(P, batches=4)}, 0),  # too few to tell its capacity
    ],
)
def test_value_is_demand_by_capacity(
    demands: dict[str, float], reports: dict[str, ServerReport], value: int
) -> None:
    desired = DesiredServers()
    desired.update(0.0, jobs(**demands), reports)
    assert desired.value == value


def test_capacity_is_remembered_through_a_pause() -> None:
    desired = DesiredServers()
    desired.update(0.0, jobs(p=50.0), {"p": report(5.0, 0.5)})
    for second in range(1, 600):
        desired.update(float(second), jobs(p=50.0), {"p": replace(P, batches=second % 4)})
    assert desired.value == 6


def test_share_of_a_job_ends_with_its_last_rank() -> None:
    desired = DesiredServers()
    both = {"heavy": Demand("p", 425.0), "light": Demand("p", 17.0)}
    for second in range(100):
        desired.update(float(second), both, {"p": P})
    assert desired.value == 52
    silent = {**both, "heavy": Demand("p", float("inf"))}  # connected, but without reports
    desired.update(100.0, silent, {"p": P})
    assert desired.value == 52
    desired.update(101.0, {"light": both["light"]}, {"p": P})
    assert desired.value == 2
    desired.update(102.0, {}, {})
    assert desired.value == 1
    desired.update(4000.0, {}, {})
    assert desired.value == 1


class Fleet:
    """Servers behind an autoscaler, and a job that takes all their batches."""

    capacity = 10.0

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.gauge = DesiredServers()
        self.demand = 0.0
        self.ready = 1
        self.starting: deque[float] = deque()
        self.now = 0.0
        self.sizes: list[int] = []

    def run(self, seconds: int) -> list[int]:
        """Returns the number of ready servers in each second."""
        begin = len(self.sizes)
        for _ in range(seconds):
            self.now += 1
            while self.starting and self.starting[0] <= self.now:
                self.starting.popleft()
                self.ready += 1
            self._measure()
            if self.now % SYNC_SECONDS == 0:
                self._scale()
            self.sizes.append(self.ready)
        return self.sizes[begin:]

    def _measure(self) -> None:
        noise = self.random.uniform
        rate = min(self.demand / self.ready, self.capacity)
        share = min(1.0, rate / self.capacity * noise(0.9, 1.1))
        demand = self.demand * noise(0.9, 1.1)  # steps differ
        self.gauge.update(self.now, jobs(p=demand), {"p": report(rate, share)})

    def _scale(self) -> None:
        wanted = max(1, self.gauge.value)
        for _ in range(wanted - self.ready - len(self.starting)):
            self.starting.append(self.now + START_UP_SECONDS)
        self.ready = min(self.ready, wanted)


@pytest.mark.parametrize("demand", [8.0, 85.0])
def test_fleet_reaches_its_size_and_stays(demand: float) -> None:
    fleet = Fleet()
    fleet.demand = demand
    fleet.run(600)
    sizes = fleet.run(1200)
    assert min(sizes) * fleet.capacity >= demand  # scaling down never starves the job
    assert max(sizes) <= demand / fleet.capacity / UTILISATION * 1.2 + 2
    changes = sum(a != b for a, b in itertools.pairwise(sizes))
    assert changes <= 2


def test_fleet_follows_the_demand_up_and_down() -> None:
    fleet = Fleet()
    fleet.demand = 20.0
    fleet.run(900)
    fleet.demand = 80.0
    fleet.run(240)
    assert fleet.ready * fleet.capacity >= 80
    fleet.demand = 20.0
    sizes = fleet.run(1200)
    assert sizes == sorted(sizes, reverse=True)
    assert 2 <= sizes[-1] <= 4


def rank(wait: float, streams: int = 3, number: int = 0) -> RankReport:
    report = TrainerReport(seconds=10.0, steps=100, wait_seconds=wait, streams=streams)
    return RankReport(number, report)


def job(*ranks: RankReport, server: ServerReport | None = None) -> JobVerdict:
    world_size = max(2, len(ranks))
    return ranks, world_size, judge(ranks, world_size, [server or report(5.0, 1.0)])


def test_servers_that_feed_all_jobs_are_enough() -> None:
    fed = job(rank(0.1), rank(0.2, number=1))
    assert enough_in_use([fed]) == 3
    assert enough_in_use([fed, job(rank(0.1, streams=4), rank(0.1, number=1))]) == 4
    assert enough_in_use([job(rank(0.1, streams=1))]) == 2  # the other rank has its own server
    assert enough_in_use([]) is None
    assert enough_in_use([fed, job()]) is None  # without a report
    starving = job(rank(5.0), rank(0.1, number=1))
    assert starving[2].cause == "transforms"
    assert enough_in_use([fed, starving]) is None


def test_no_more_servers_are_desired_than_feed_all_trainers() -> None:
    desired = DesiredServers()
    desired.update(0.0, jobs(p=50.0), {"p": report(5.0, 0.5)})
    assert desired.value == 6
    for second in range(1, 100):
        desired.update(float(second), jobs(p=50.0), {"p": report(5.0, 0.5)}, enough=3)
        assert desired.value == 3
    desired.update(200.0, jobs(p=50.0), {"p": report(5.0, 0.5)})  # the trainers wait again
    assert desired.value > 3
