"""Pipeline reports: windows over totals and states."""

from __future__ import annotations

import pytest

from infeed_server.engines.state_clock import PipelineState
from infeed_server.observe.pipeline_reports import PipelineReports
from infeed_server.observe.totals import Totals


class Pipeline:
    """A pipeline whose counters the test sets."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0
        self.seconds: dict[PipelineState, float] = {
            "no_request": 0.0,
            "no_budget": 0.0,
            "source": 0.0,
            "transform": 0.0,
        }
        self.totals = Totals()
        self.reports = PipelineReports(self.totals, lambda: self.now, lambda: self.cpu)
        self.reports.watch("p", lambda: self.seconds)

    def run(self, seconds: int, **states: float) -> None:
        """Runs for some seconds, with the share of each state in every second."""
        for _ in range(seconds):
            self.now += 1
            self.cpu += 0.5
            for name, share in states.items():
                self.seconds[name] += share  # type: ignore[literal-required,index]
            self.totals.on_batch_sent("p", 8, 1000)
            self.totals.on_stage("p", "encode", 0.1)
            self.totals.on_stage("p", "send", 0.2)
            self.reports.update()


def test_report_covers_the_last_ten_seconds() -> None:
    pipeline = Pipeline()
    assert pipeline.reports.report("p").seconds == 0
    pipeline.run(50, source=1.0)
    pipeline.run(10, transform=0.75, no_budget=0.25)
    report = pipeline.reports.report("p")
    assert (report.seconds, report.batches, report.bytes) == (10, 10, 10_000)
    assert (report.source_seconds, report.no_request_seconds) == (0, 0)
    assert report.transform_seconds == pytest.approx(7.5)
    assert report.no_budget_seconds == pytest.approx(2.5)
    assert report.encode_seconds == pytest.approx(1.0)
    assert report.send_seconds == pytest.approx(2.0)
    assert report.cpu_seconds == pytest.approx(5.0)


def test_states_of_several_batch_sizes_add_up_to_the_time() -> None:
    pipeline = Pipeline()
    pipeline.run(20, transform=0.5, no_request=1.5)  # one of two sizes works half of the time
    report = pipeline.reports.report("p")
    assert (report.transform_seconds, report.no_request_seconds) == (5.0, 5.0)
    pipeline.run(20, transform=1.5, source=0.5)
    report = pipeline.reports.report("p")
    assert (report.transform_seconds, report.source_seconds) == (7.5, 2.5)
    assert report.no_request_seconds == 0


def test_idle_pipeline_reports_zeros() -> None:
    pipeline = Pipeline()
    for _ in range(30):
        pipeline.now += 1
        pipeline.seconds["no_request"] += 1
        pipeline.reports.update()
    report = pipeline.reports.report("p")
    assert (report.batches, report.busy_seconds, report.no_request_seconds) == (0, 0, 10)
