"""Verdicts on built situations: level, worst rank, cause, and servers that would be enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infeed.shared.capacity import capacity, consumption, enough_servers
from infeed.shared.report import RankReport, ServerReport, TrainerReport
from infeed.shared.verdict import judge

SERVER = ServerReport(seconds=10.0, batches=100, bytes=10**9, cores=4.0, no_request_seconds=10.0)
WAITING = TrainerReport(seconds=10.0, steps=100, wait_seconds=5.0, streams=1, bytes=10**9)

BUSY = replace(SERVER, no_request_seconds=0.0, cpu_seconds=38.0)
PYTHON = replace(
    BUSY,
    source_seconds=9.5,
    python_workers=2,
    python_seconds=19.0,
    python_samples=160,
    cpu_seconds=4.0,
    batches=10,
)
"""Two workers that wait for something all the time."""


def rank(report: TrainerReport, number: int = 0) -> RankReport:
    return RankReport(number, report)


@pytest.mark.parametrize(
    ("share", "level"),
    [
        (0.0, "not input-bound"),
        (0.049, "not input-bound"),
        (0.05, "moderately input-bound"),
        (0.199, "moderately input-bound"),
        (0.2, "highly input-bound"),
        (1.0, "highly input-bound"),
    ],
)
def test_levels_are_those_of_the_profiler(share: float, level: str) -> None:
    verdict = judge([rank(replace(WAITING, wait_seconds=10 * share))], 1, [SERVER])
    assert verdict.level == level
    assert verdict.is_input_bound == (share >= 0.05)
    assert (verdict.cause is not None) == verdict.is_input_bound
    assert str(verdict).startswith(f"{level}: the trainer waited {100 * share:.1f} % of the time")


ASK = "ask again when the training has run for 3 s"


def test_no_verdict_before_two_batches() -> None:
    assert str(judge([], 1, [])) == f"no verdict yet: 0 batches taken; {ASK}"
    one = TrainerReport(total_steps=1)
    assert str(judge([rank(one)], 1, [SERVER])) == f"no verdict yet: 1 batch taken; {ASK}"


def test_no_verdict_on_a_feed_that_rests() -> None:
    verdict = judge([rank(TrainerReport(total_steps=10))], 1, [SERVER])
    text = f"no verdict yet: 10 batches taken, none in the seconds measured; {ASK}"
    assert str(verdict) == text


def test_job_is_judged_by_its_worst_rank() -> None:
    ranks = [rank(replace(WAITING, wait_seconds=0.1 * n), n) for n in (0, 5, 1)]
    verdict = judge(ranks, 8, [SERVER])
    assert (verdict.rank, verdict.world_size) == (5, 8)
    assert str(verdict).startswith("moderately input-bound: rank 5 of 8 waited 5.0 %")


IN_USE = " of the servers' processors in use"


def test_consumption_is_that_of_the_slowest_rank() -> None:
    slow = replace(WAITING, wait_seconds=0.0)
    assert consumption([rank(WAITING), rank(slow)], 8) == pytest.approx(8 / 0.1)


def test_capacity_of_a_loaded_server_is_its_rate() -> None:
    loaded = replace(BUSY, transform_seconds=10.0, cpu_seconds=20.0)  # others use the rest
    assert capacity(loaded) == pytest.approx(10.0)


def test_capacity_of_an_idle_server_follows_from_its_processors() -> None:
    idle = replace(SERVER, no_request_seconds=8.0, transform_seconds=2.0, cpu_seconds=4.0)
    assert capacity(idle) == pytest.approx(100.0)
    assert capacity(replace(idle, source_seconds=5.0)) == pytest.approx(20.0)
    assert capacity(replace(idle, cpu_seconds=0.0, transform_seconds=0.0)) == pytest.approx(10_000)
    more = replace(idle, cpu_seconds=60.0)  # its last reading is late
    assert capacity(more) == pytest.approx(10.0)
    assert capacity(ServerReport(seconds=10.0)) is None
    assert capacity(ServerReport(batches=5)) is None


def test_processors_that_others_use_are_no_capacity() -> None:
    idle = replace(SERVER, no_request_seconds=8.0, transform_seconds=2.0, cpu_seconds=4.0)
    assert capacity(replace(idle, available_cores=2.5)) == pytest.approx(62.5)
    assert capacity(replace(idle, available_cores=9.0)) == pytest.approx(100.0)


def test_busy_neighbours_do_not_hide_the_time_without_a_request() -> None:
    # For 78 % of the time it had nothing to make, though other processes used the rest of the host.
    idle = replace(SERVER, no_request_seconds=7.8, transform_seconds=2.2, cpu_seconds=4.0)
    assert capacity(replace(idle, available_cores=0.4)) == pytest.approx(10.0 / 0.22)
    sending = replace(idle, cpu_seconds=38.0)  # all processors are its own, for other work
    assert capacity(replace(sending, available_cores=3.8)) == pytest.approx(10.0 / 0.95)


def test_enough_servers_serve_the_job_and_the_others() -> None:
    loaded = replace(BUSY, transform_seconds=10.0)  # 10 batches/s
    assert enough_servers([rank(WAITING)], 1, [loaded]) == 2  # 20 steps/s without waits
    assert enough_servers([rank(WAITING)], 4, [loaded]) == 8
    shared = replace(WAITING, steps=50)  # 10 steps/s without waits; 5 batches/s go to others
    assert enough_servers([rank(shared)], 1, [loaded]) == 2
    assert enough_servers([rank(WAITING)], 1, [ServerReport(seconds=10.0)]) is None
    slower = replace(loaded, batches=50)  # 15 batches/s together; others take 5
    assert enough_servers([rank(WAITING)], 1, [loaded, slower]) == 4
    two = [rank(replace(WAITING, steps=50), number) for number in range(2)]  # 10 batches/s together
    assert enough_servers(two, 2, [loaded]) == 2
    other = replace(loaded, batches=300)  # others take 20 batches/s
    assert enough_servers(two, 2, [other]) == 2
    assert enough_servers(two[:1], 2, [replace(loaded, batches=150)]) == 2
    # The rank that has not reported takes as much as the other one; others take 1 batch/s.
    assert enough_servers(two[:1], 2, [replace(loaded, batches=110)]) == 2
    resting = replace(WAITING, steps=0)
    idle = replace(SERVER, batches=1000, cpu_seconds=1.0)
    assert enough_servers([rank(WAITING), rank(resting, 1)], 1, [idle]) == 1


def test_advised_workers_are_bounded_by_idle_processors() -> None:
    slow = judge([rank(replace(WAITING, steps=10))], 1, [PYTHON])  # 1 of 2 batches/s
    assert (slow.cause, slow.servers) == ("Python workers", None)
    assert slow.detail == ("its 2 Python workers were busy 95 % of the time, with 10 %" + IN_USE)
    assert "processes: 4 at" in slow.advice
    fast = judge([rank(replace(WAITING, steps=10, wait_seconds=9.0))], 1, [PYTHON])
    assert "processes: 20 at" in fast.advice  # of 4 processors, 0.4 are in use
    computing = replace(PYTHON, cpu_seconds=20.0)
    assert "processes: 4 at" in judge([rank(WAITING)], 1, [computing]).advice
    only = replace(PYTHON, python_workers=1, python_seconds=9.5)
    assert judge([rank(WAITING)], 1, [only]).detail.startswith("its Python worker was busy 95 %")


def test_no_number_of_servers_follows_from_nothing() -> None:
    loaded = replace(BUSY, transform_seconds=10.0)
    idle_loop = replace(WAITING, wait_seconds=9.99)  # 0.1 ms beside each wait
    verdict = judge([rank(idle_loop)], 1, [loaded])
    assert (verdict.cause, verdict.servers) == ("transforms", None)
    assert "for a loop that does no work between batches" in str(verdict)
    assert judge([rank(WAITING)], 1, [replace(loaded, batches=4)]).servers is None
    assert judge([rank(WAITING)], 1, [replace(loaded, batches=5)]).servers is not None


def test_as_many_servers_as_there_are_cannot_be_enough() -> None:
    loaded = replace(BUSY, transform_seconds=10.0)
    assert judge([rank(WAITING)], 1, [loaded]).servers == 2
    two = replace(WAITING, streams=2)
    assert judge([rank(two)], 1, [loaded]).servers is None


def test_verdict_needs_some_seconds() -> None:
    young = replace(WAITING, seconds=2.9)
    text = "no verdict yet: 2.9 s measured, at least 3 s are needed"
    assert str(judge([rank(young)], 1, [SERVER])) == text
    assert judge([rank(young), rank(replace(WAITING, seconds=3.0), 1)], 2, [SERVER]).rank == 1


def test_missing_server_comes_first() -> None:
    loaded, lost = replace(BUSY, transform_seconds=10.0), {"b:1": "is lost"}
    one = judge([rank(WAITING)], 1, [loaded], lost)
    assert (one.cause, one.servers) == ("missing server", None)
    assert "cause: missing server (b:1 is lost); first: start it" in str(one)
    both = judge([rank(WAITING)], 1, [], {**lost, "a:1": "was never reached"})
    assert both.detail == "a:1 was never reached, b:1 is lost"
    fed = judge([rank(replace(WAITING, wait_seconds=0.0))], 1, [loaded], lost)
    assert fed.cause is None


def test_without_a_server_s_report_the_cause_is_unknown() -> None:
    verdict = judge([rank(WAITING)], 1, [ServerReport()])
    assert verdict.cause is None
    assert str(verdict).endswith("; no server has yet reported the cause")
