"""Reports on the wire and in JSON."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infeed.shared.capacity import capacity
from infeed.shared.report import RankReport, ServerReport, TrainerReport, merge_processes

TRAINER = TrainerReport(
    *(10.0, 50, 2.5, 7, 4.0, 1.5, 0.25, 1_000_000),
    streams=2,
    ready_batches=3,
    total_steps=99,
    position=6400,
)
SERVER = ServerReport(
    *(10.0, 60, 2_000_000, 1.0, 2.0, 3.0, 4.0, 0.5, 0.75, 15.0, 2.0, 1.75, 300, 900, 2, 17),
    worst=RankReport(3, TRAINER),
)


def test_reports_survive_the_wire() -> None:
    assert TrainerReport.from_proto(TRAINER.to_proto()) == TRAINER
    assert ServerReport.from_proto(SERVER.to_proto()) == SERVER
    alone = replace(SERVER, worst=None)
    assert ServerReport.from_proto(alone.to_proto()) == alone


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e19])
def test_impossible_figures_are_refused(value: float) -> None:
    trainer, server = TRAINER.to_proto(), SERVER.to_proto()
    trainer.seconds = server.cpu_seconds = value
    with pytest.raises(ValueError, match=r"TrainerReport\.seconds is .*from 0 to 2\^62"):
        TrainerReport.from_proto(trainer)
    with pytest.raises(ValueError, match=r"ServerReport\.cpu_seconds is"):
        ServerReport.from_proto(server)


def test_worst_rank_is_checked_too() -> None:
    message = SERVER.to_proto()
    message.worst.report.steps = -1
    with pytest.raises(ValueError, match=r"TrainerReport\.steps is -1"):
        ServerReport.from_proto(message)


def test_server_of_an_earlier_version_is_one_process() -> None:
    message = SERVER.to_proto()
    for name in ("available_cores", "memory_bytes", "memory_limit_bytes", "processes"):
        message.ClearField(name)
    report = ServerReport.from_proto(message)
    assert (report.processes, report.memory_bytes) == (1, 0)
    assert (SERVER.usable_cores, report.usable_cores) == (1.75, 2.0)


ONE = ServerReport(
    seconds=10.0,
    batches=40,
    bytes=4000,
    no_request_seconds=2.0,
    no_budget_seconds=1.0,
    source_seconds=3.0,
    transform_seconds=4.0,
    encode_seconds=0.5,
    send_seconds=0.25,
    cpu_seconds=8.0,
    cores=2.0,
    available_cores=1.5,
    memory_bytes=100,
    memory_limit_bytes=1000,
    processes=2,
    process_id=11,
)
IDLE = ServerReport(seconds=10.0, no_request_seconds=10.0, cores=2.0, processes=2, process_id=12)


def test_states_are_means_and_the_rest_are_sums() -> None:
    assert merge_processes([ONE, IDLE]) == ServerReport(
        seconds=10.0,
        batches=40,
        bytes=4000,
        no_request_seconds=6.0,
        no_budget_seconds=0.5,
        source_seconds=1.5,
        transform_seconds=2.0,
        encode_seconds=0.5,
        send_seconds=0.25,
        cpu_seconds=8.0,
        cores=4.0,
        available_cores=1.5,
        memory_bytes=100,
        memory_limit_bytes=1000,
    )


def test_report_on_less_time_is_taken_to_go_on() -> None:
    short = replace(IDLE, seconds=5.0, no_request_seconds=5.0, batches=3, cpu_seconds=1.0)
    merged = merge_processes([ONE, short])
    assert (merged.batches, merged.cpu_seconds) == (46, 10.0)
    states = merged.no_request_seconds + merged.no_budget_seconds + merged.busy_seconds
    assert states == pytest.approx(merged.seconds)
    new = ServerReport(cores=2.0, processes=2)
    assert merge_processes([ONE, new]).batches == 40


def test_processes_without_a_report_are_like_the_others() -> None:
    four = [replace(ONE, processes=4, process_id=number) for number in range(4)]
    whole = capacity(merge_processes(four))
    assert whole == capacity(merge_processes(four[:2])) == capacity(four[0])
    assert whole == pytest.approx(4 * (capacity(replace(ONE, processes=1)) or 0))
    assert merge_processes(four[:3]).processes == 1
    assert merge_processes([*four, *four]).processes == 1
