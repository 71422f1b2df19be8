"""Server reports of a load test: many that overlap in time, of one or more processes, as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from infeed.shared.report import ServerReport, merge_processes

TimedReport = tuple[float, ServerReport]
"""Monotonic seconds at the end of the time that a report covers, and the report."""

_SUMS = (
    *("seconds", "batches", "bytes", "encode_seconds", "send_seconds", "cpu_seconds"),
    *("no_request_seconds", "no_budget_seconds", "source_seconds", "transform_seconds"),
    *("shortage_seconds", "python_seconds", "python_samples"),
)


def merged_report(reports: list[TimedReport], begin: float) -> ServerReport:
    """Returns one report of a server on the time since `begin`."""
    return merge_processes([_since(process, begin) for process in _by_process(reports)])


def last_report(reports: list[TimedReport]) -> ServerReport:
    """Returns the last report of a server; of several processes, all together."""
    return merge_processes([process[-1][1] for process in _by_process(reports)])


def _by_process(reports: Iterable[TimedReport]) -> list[list[TimedReport]]:
    """Returns the reports of each process of a server, without processes that are gone.

    A server without `--processes` that was restarted is the same as before.
    """
    groups: dict[int, list[TimedReport]] = {}
    for at, report in reports:
        key = report.process_id if report.processes > 1 else 0
        groups.setdefault(key, []).append((at, report))
    latest = sorted(groups.values(), key=lambda group: group[-1][0])
    return latest[-latest[-1][-1][1].processes :]


def _since(reports: list[TimedReport], begin: float) -> ServerReport:
    """Returns one report of a process: the last, and earlier ones that overlap none."""
    at, last = reports[-1]
    taken, free_until = [last], at - last.seconds
    for at, report in reversed(reports):
        if at <= free_until and at - report.seconds >= begin:
            taken.append(report)
            free_until = at - report.seconds
    sums = {name: sum(getattr(report, name) for report in taken) for name in _SUMS}
    available = sum(report.available_cores * report.seconds for report in taken) / sums["seconds"]
    memory = max(report.memory_bytes for _, report in reports)
    return replace(last, **sums, available_cores=available, memory_bytes=memory)
