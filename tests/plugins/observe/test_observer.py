"""Observer: a server's verdict, the status that readers see, and its trainers' demand."""

from __future__ import annotations

from typing import Any

import pytest
from tests.harness.clock import ManualClock
from tests.harness.observed import fake_engine, new_observer, observed

from infeed.shared.report import TrainerReport
from infeed_observe import usage
from infeed_observe.observer import Observer
from infeed_server.serving.instrument import ConnectedTrainer


def connect(observer: Observer, seed: int, report: TrainerReport | None) -> None:
    trainer = ConnectedTrainer("photos", 0, f"{seed}", "10.0.0.9:1", seed, 4)
    observer.jobs.connect(trainer)
    if report is not None:
        observer.jobs.on_report(trainer, report)


@pytest.mark.parametrize("seeds", [(1, 2), (2, 1)])
def test_verdict_is_one_that_is_known(seeds: tuple[int, int]) -> None:
    observer = new_observer({"photos": fake_engine("photos")}, ManualClock())
    known, unknown = seeds
    connect(observer, unknown, None)
    assert observer.to_json({})["verdict"]["level"] == "unknown"
    connect(observer, known, TrainerReport(seconds=10.0, steps=20, total_steps=20))
    assert observer.to_json({})["verdict"]["level"] == "not input-bound"


def test_job_whose_steps_have_no_length_hides_no_other_demand() -> None:
    clock, engine = ManualClock(), fake_engine("photos")
    observer = new_observer({"photos": engine}, clock)
    connect(observer, 1, TrainerReport(seconds=10.0, steps=20, wait_seconds=10.0))
    connect(observer, 2, TrainerReport(seconds=10.0, steps=20))
    for _ in range(12):
        observer.metrics.count("infeed_batches", "photos")
        engine.states["source"] += 1.0
        observer.update()
        clock.now += 1.0
    assert observer.status.desired_servers == 3  # 2 batches/s from servers that make 0.85 of one


def test_trainer_that_no_longer_reports_is_in_no_figure() -> None:
    observer = observed("photos")
    assert observer.to_json({})["verdict"]["wait_share"] == 0.5
    clock: Any = observer._clock
    clock.now += 15.0
    observer.update()
    assert observer.to_json({})["verdict"]["level"] == "unknown"
    assert observer.status.pipelines["photos"].worst_wait is None


def test_figures_of_metrics_are_those_of_the_status() -> None:
    observer = observed("photos", "other")
    sample = observer.metrics.registry.get_sample_value
    photos = {"pipeline": "photos"}
    assert sample("infeed_trainers", photos) == 2
    assert sample("infeed_trainers", {"pipeline": "other"}) == 0
    assert sample("infeed_wait_ratio", photos) == 0.5
    assert sample("infeed_wait_ratio", {"pipeline": "other"}) is None
    assert sample("infeed_queued_requests", photos) == 5
    assert sample("infeed_pipeline_ready", photos) == 1
    assert sample("infeed_unsent_limit_bytes") == 1 << 30
    assert sample("infeed_certificate_expiry_timestamp_seconds") is None
    for decoder, pictures in (("native", 20), ("tensorflow", 4)):
        assert sample("infeed_pictures_total", {**photos, "decoder": decoder}) == pictures
    assert sample("infeed_requested_samples_total", {**photos, "origin": "shared"}) == 10
    state = {**photos, "state": "transform"}
    assert sample("infeed_pipeline_state_seconds_total", state) == 9
    assert sample("infeed_desired_servers") == observer.status.desired_servers > 0


def test_peak_of_memory_has_the_children_too(monkeypatch: pytest.MonkeyPatch) -> None:
    observer = observed("photos")
    for resident, peak in ((1 << 50, 1 << 50), (1 << 20, 1 << 50)):
        monkeypatch.setattr(usage, "resident_bytes", lambda resident=resident: resident)
        observer.update()
        server = observer.to_json({})["server"]
        assert (server["memory_bytes"], server["peak_memory_bytes"]) == (resident, peak)
