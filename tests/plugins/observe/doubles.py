"""Views of trainers and jobs for tests."""

from __future__ import annotations

from typing import Any

from infeed.shared.report import ServerReport, TrainerReport
from infeed_observe.views import JobView, TrainerView


def trainer_view(rank: int, wait_share: float | None = None, **changes: Any) -> TrainerView:
    """Returns the trainer of a rank, without a report if `wait_share` is None."""
    report = None
    if wait_share is not None:
        report = TrainerReport(10.0, 20, 10 * wait_share, streams=1)
    values: dict[str, Any] = {
        "feed": f"feed-{rank}",
        "peer": f"10.0.0.{rank}:50000",
        "connected_seconds": 5.0,
        "sent_position": None,
        "report_age_seconds": None if report is None else 1.0,
        **changes,
    }
    return TrainerView(rank, report=report, **values)


def job_view(
    number: int, *trainers: TrainerView, world_size: int = 2, report: ServerReport | None = None
) -> JobView:
    """Returns job `number` among equal jobs."""
    report = report or ServerReport()
    return JobView(f"p-7-8x2-{number}", 7, 8, world_size, report, list(trainers))
