"""Reports of the processes of one host, as the report of one server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infeed.shared.capacity import capacity
from infeed.shared.report import ServerReport, merge_processes

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


def test_processes_without_a_report_count_as_servers_of_their_own_nowhere() -> None:
    four = [replace(ONE, processes=4, process_id=number) for number in range(4)]
    whole = capacity(merge_processes(four))
    assert whole == capacity(merge_processes(four[:2])) == capacity(four[0])
    assert whole == pytest.approx(4 * (capacity(replace(ONE, processes=1)) or 0))
    assert merge_processes(four[:3]).processes == 1
    assert merge_processes([*four, *four]).processes == 1
