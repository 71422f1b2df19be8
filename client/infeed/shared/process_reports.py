"""Process reports: those of the processes of one host, merged into the report of one server.

`infeed serve --processes N` shares one address among N processes, each of which reports on itself.
"""

from __future__ import annotations

from collections.abc import Collection

from infeed.shared.report import ServerReport

_STATES = ("no_request_seconds", "no_budget_seconds", "source_seconds", "transform_seconds")

_GROWING = (
    *("batches", "bytes", "encode_seconds", "send_seconds", "cpu_seconds"),
    *("python_seconds", "python_samples"),
)

_SHARED = ("cores", "available_cores", "memory_bytes", "memory_limit_bytes", "python_workers")
"""Of which each process has its share, whatever time its report covers."""


def merge_processes(reports: Collection[ServerReport]) -> ServerReport:
    """Returns the report of one server with all of these processes; there must be at least one.

    Its states add up to its time, as those of one process do. A report that covers less time than
    the longest one is taken to go on like this. So are processes that have not reported to be like
    the others: `processes` says how many times the merged ones are the server.
    """
    seconds = max(each.seconds for each in reports)
    scales = [(each, seconds / each.seconds if each.seconds else 0.0) for each in reports]
    values = {name: sum(getattr(each, name) for each in reports) for name in _SHARED}
    for name in _GROWING:
        values[name] = sum(scale * getattr(each, name) for each, scale in scales)
    for name in _STATES:
        values[name] = sum(scale * getattr(each, name) for each, scale in scales) / len(reports)
    shortage = max(scale * each.shortage_seconds for each, scale in scales)
    slowest = max(reports, key=lambda each: each.slowest_sample_seconds)
    for name in ("batches", "bytes", "python_samples"):
        values[name] = round(values[name])
    count = max(each.processes for each in reports)
    return ServerReport(
        **values,
        seconds=seconds,
        processes=max(1, count // len(reports)),
        shortage_seconds=shortage,
        slowest_sample=slowest.slowest_sample,
        slowest_sample_seconds=slowest.slowest_sample_seconds,
        is_sequential=any(each.is_sequential for each in reports),
    )
