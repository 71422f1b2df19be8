"""Process reports: the reports of the processes of one host, merged into the report of one server.

`infeed serve --processes N` shares one address among N processes, each of which reports on itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from infeed.shared.report import ServerReport

_STATES = ("no_request_seconds", "no_budget_seconds", "source_seconds", "transform_seconds")

_TIMES = ("encode_seconds", "send_seconds", "cpu_seconds", "python_seconds")

_COUNTS = ("batches", "bytes", "python_samples")

_SHARED = ("cores", "available_cores", "memory_bytes", "memory_limit_bytes", "python_workers")
"""Each process has its share of these, whatever time its report covers."""


def merge_processes(reports: Iterable[ServerReport]) -> ServerReport:
    """Returns the report of one server with all of these processes; there must be at least one.

    Its states add up to its time, as in the report of one process. A report that covers less time
    than the longest one is taken to go on like this. Processes that have not reported are taken to
    be like the others: `processes` says how many times the merged ones are the server.
    """
    first, *others = reports = list(reports)
    if not others:
        return first
    seconds = max(report.seconds for report in reports)
    scales = [seconds / report.seconds if report.seconds else 0.0 for report in reports]

    def scaled(name: str) -> list[float]:
        return [scale * getattr(one, name) for scale, one in zip(scales, reports, strict=True)]

    values: dict[str, Any] = {
        **{name: sum(getattr(report, name) for report in reports) for name in _SHARED},
        **{name: sum(scaled(name)) for name in _TIMES},
        **{name: round(sum(scaled(name))) for name in _COUNTS},
        **{name: sum(scaled(name)) / len(reports) for name in _STATES},
    }
    slowest = max(reports, key=lambda report: report.slowest_sample_seconds)
    return replace(
        slowest,
        seconds=seconds,
        processes=max(1, max(report.processes for report in reports) // len(reports)),
        process_id=0,
        shortage_seconds=max(scaled("shortage_seconds")),
        is_sequential=any(report.is_sequential for report in reports),
        worst=None,
        **values,
    )
