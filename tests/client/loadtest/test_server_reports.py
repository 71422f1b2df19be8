"""Reports of a server that overlap in time, or are of several processes, as one."""

from __future__ import annotations

import pytest
from tests.client.loadtest.samples import busy_server

from infeed.loadtest.server_reports import merged_report
from infeed.shared.report import ServerReport


def test_reports_that_overlap_count_once() -> None:
    reports = [
        (float(at), ServerReport(seconds=2.0, batches=at, cores=4.0, source_seconds=1.0))
        for at in range(1, 7)
    ]
    merged = merged_report(reports, 1.5)
    assert (merged.seconds, merged.batches) == (4.0, 6 + 4)  # the report of 2 began before
    assert (merged.cores, merged.source_seconds) == (4.0, 2.0)


def test_a_restarted_server_is_one_with_the_most_memory() -> None:
    reports = [
        (float(at), busy_server(process_id=at, memory_bytes=memory, available_cores=at / 4))
        for at, memory in ((1, 5), (2, 9), (3, 7))
    ]
    merged = merged_report(reports, 0.0)
    assert (merged.seconds, merged.batches, merged.memory_bytes) == (3.0, 30, 9)
    assert (merged.cores, merged.available_cores) == (1.0, pytest.approx(0.5))


def test_processes_behind_one_address_are_one_server() -> None:
    reports = [
        (at + process / 10, busy_server(processes=2, process_id=process, memory_bytes=100))
        for at in (1.0, 2.0, 3.0)
        for process in (1, 2)
    ]
    merged = merged_report(reports, 0.0)
    assert (merged.seconds, merged.batches, merged.cores) == (3.0, 60, 2.0)
    assert merged.memory_bytes == 200
    # Process 2 has ended, and 3 is in its place.
    reports += [(9.0, busy_server(processes=2, process_id=number)) for number in (1, 3)]
    assert merged_report(reports, 8.0).batches == 20
