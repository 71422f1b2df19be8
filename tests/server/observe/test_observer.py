"""The status of a server: its parts agree."""

from __future__ import annotations

from itertools import count

import pytest
from tests.harness.observed import observed

from infeed.report import ServerReport


def test_verdict_of_the_status_is_that_of_a_job_also_while_reports_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observer = observed("photos", "other")
    busy = (
        ServerReport(seconds=10.0, batches=number, transform_seconds=9.0, cores=2.0)
        for number in count(1)
    )
    monkeypatch.setattr(observer.jobs, "_server_report", lambda _: next(busy))
    status = observer.to_json({})
    (job,) = status["pipelines"][0]["jobs"]
    assert job["verdict"]["level"] == "highly input-bound"
    assert status["verdict"] == job["verdict"]
