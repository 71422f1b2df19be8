"""Pipeline reports: windows over totals and states."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.shared.report import SAMPLE_COUNTS
from infeed_observe import usage
from infeed_observe.pipeline_reports import PipelineReports
from infeed_python.work_meter import PythonWork
from infeed_server.engines.figures import Figures
from infeed_server.engines.state_clock import PipelineState
from infeed_server.processes import cgroup


class Pipeline:
    """A pipeline whose counters the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_sequential: bool = False) -> None:
        names = {"cpu_seconds": "cpu", "idle_seconds": "idle", "resident_bytes": "memory"}
        for function, name in names.items():
            monkeypatch.setattr(usage, function, partial(getattr, self, name))
        self.now = self.cpu = 0.0
        self.idle: float | None = 0.0
        self.memory = 1000
        self.seconds: dict[PipelineState, float] = {
            "no_request": 0.0,
            "no_budget": 0.0,
            "source": 0.0,
            "transform": 0.0,
            "repair": 0.0,
        }
        self.totals = Counter(batches=0, bytes=0, encode_seconds=0, send_seconds=0)
        self.reports = PipelineReports(lambda: self.now)
        self.work, self.counts = PythonWork(), dict.fromkeys(SAMPLE_COUNTS, 0)
        engine: Any = SimpleNamespace(
            figures=lambda: Figures(
                state_seconds=self.seconds, python_work=self.work, sample_counts=self.counts
            )
        )
        self.reports.watch("p", engine, is_sequential=is_sequential)

    def run(self, seconds: int, **states: float) -> None:
        """Runs for some seconds, with the share of each state in every second."""
        for _ in range(seconds):
            self.now += 1
            self.cpu += 0.5
            for name, share in states.items():
                self.seconds[name] += share  # type: ignore[literal-required,index]
            self.totals.update({"batches": 1, "bytes": 1000})
            self.totals.update({"encode_seconds": 0.1, "send_seconds": 0.2})  # type: ignore[dict-item]
            self.update()

    def update(self) -> None:
        self.reports.update({"p": self.totals})


NewPipeline = Callable[..., Pipeline]


@pytest.fixture
def new_pipeline(monkeypatch: pytest.MonkeyPatch) -> NewPipeline:
    return partial(Pipeline, monkeypatch)


def test_report_covers_the_last_ten_seconds(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
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


def test_states_of_several_batch_sizes_add_up_to_the_time(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.run(20, transform=0.5, no_request=1.5)  # one of two sizes works half of the time
    report = pipeline.reports.report("p")
    assert (report.transform_seconds, report.no_request_seconds) == (5.0, 5.0)
    pipeline.run(20, transform=1.5, source=0.5)
    report = pipeline.reports.report("p")
    assert (report.transform_seconds, report.source_seconds) == (7.5, 2.5)
    assert report.no_request_seconds == 0
    # Repairing bad samples also counts as work of the transforms.
    pipeline.run(20, repair=0.5, transform=0.25, no_request=0.25)
    report = pipeline.reports.report("p")
    assert (report.repair_seconds, report.transform_seconds) == (5.0, 7.5)
    assert (report.busy_seconds, report.no_request_seconds) == (7.5, 2.5)


def test_report_has_the_memory_of_the_moment_and_the_limit(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    assert pipeline.reports.report("p").memory_limit_bytes == cgroup.memory_bytes()
    assert pipeline.reports.process.memory_bytes == 1000
    pipeline.run(20)
    pipeline.memory = 5000
    pipeline.run(1)
    report = pipeline.reports.report("p")
    assert (report.memory_bytes, report.memory_limit_bytes) == (5000, cgroup.memory_bytes())
    process = pipeline.reports.process
    assert (process.memory_bytes, process.memory_limit_bytes) == (5000, cgroup.memory_bytes())
    assert (report.processes, report.process_id) == (1, os.getpid())


@pytest.mark.parametrize(
    ("processes", "idle", "available"),
    [
        (1, 0.5, 1.0),  # 0.5 used, 0.5 idle, and 3 of 4 used by others
        (1, 9.0, 4.0),
        (1, 0.0, 0.5),
        (1, None, 4.0),  # unknown on this host
        (1, -9.0, 0.5),  # a processor was switched off, so its time left the sum
        (2, 0.5, 0.75),  # each of two processes gets half of the idle time
    ],
)
def test_processors_that_others_use_are_not_available(
    monkeypatch: pytest.MonkeyPatch, processes: int, idle: float | None, available: float
) -> None:
    monkeypatch.setattr(cgroup, "cpu_count", lambda: 4)
    monkeypatch.setattr(cgroup, "_process_count", processes)
    pipeline = Pipeline(monkeypatch)
    for second in range(20):
        pipeline.idle = None if idle is None else second * idle
        pipeline.run(1)
    report = pipeline.reports.report("p")
    assert report.processes == processes
    assert report.usable_cores == pytest.approx(available)


def test_report_on_fewer_seconds_leaves_out_what_was_before(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.run(10, no_request=1.0)
    pipeline.run(3, source=1.0)
    report = pipeline.reports.report("p", 3.0)
    assert (report.seconds, report.source_seconds, report.no_request_seconds) == (3, 3, 0)
    assert pipeline.reports.report("p", 60.0) == pipeline.reports.report("p")
    assert pipeline.reports.report("p").no_request_seconds == 7
    assert pipeline.reports.report("p", 0.0).seconds == 0


def test_report_has_the_work_of_python_code_and_samples_by_origin(
    new_pipeline: NewPipeline,
) -> None:
    pipeline = new_pipeline(is_sequential=True)
    pipeline.work = PythonWork(4, 0.0, 0, 7, 1.5)
    pipeline.run(1)
    pipeline.work = PythonWork(4, 3.0, 20, 7, 1.5)
    pipeline.counts = {name: number for number, name in enumerate(SAMPLE_COUNTS)}
    pipeline.run(1)
    report = pipeline.reports.report("p")
    assert (report.python_workers, report.python_seconds, report.python_samples) == (4, 3.0, 20)
    assert (report.slowest_sample, report.slowest_sample_seconds) == (7, 1.5)
    assert report.is_sequential
    assert {name: getattr(report, name) for name in SAMPLE_COUNTS} == pipeline.counts
