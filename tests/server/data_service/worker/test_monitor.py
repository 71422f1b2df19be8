"""Tests of the monitor of a worker, and of the detection of a restarted dispatcher."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from infeed_server.control.health import Readiness
from infeed_server.data_service.control import RoleMetrics
from infeed_server.data_service.process_info import ProcessInfo
from infeed_server.data_service.worker import monitor as module
from infeed_server.data_service.worker.monitor import DispatcherRestartDetector, WorkerMonitor


def value(metrics: RoleMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def metrics_of(monitor: WorkerMonitor) -> RoleMetrics:
    metrics = RoleMetrics("role", "1", "2")
    monitor.add_metrics(metrics)
    return metrics


class FakeTask:
    """Stands for both `TrafficCounter` and `DispatcherRestartDetector`."""

    sent_bytes, connections, idle_seconds = 5, 2, 7.0
    error: str | None = None
    reason: str | None = None
    runs = 0
    active = False

    def run_once(self) -> None:
        self.runs += 1

    def __enter__(self) -> None:
        self.active = True

    def __exit__(self, *_: object) -> None:
        self.active = False


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> FakeTask:
    fake = FakeTask()
    monkeypatch.setattr(module, "TrafficCounter", lambda port: fake)
    monkeypatch.setattr(module, "DispatcherRestartDetector", lambda dispatcher: fake)
    return fake


def role() -> Any:
    return SimpleNamespace(port=1, dispatcher="127.0.0.1:9", tasks=3)


def test_unwatched_worker_has_empty_state() -> None:
    monitor = WorkerMonitor()
    metrics = metrics_of(monitor)
    assert monitor.restart_reason is None
    assert monitor.readiness() == {}
    for name in ("served_bytes_total", "connections", "idle_seconds", "tasks", "wedged"):
        assert value(metrics, f"infeed_worker_{name}") == 0


def test_watched_worker_has_metrics_and_readiness(task: FakeTask) -> None:
    monitor = WorkerMonitor()
    metrics = metrics_of(monitor)
    with monitor.watch(role()):
        assert task.active
        assert task.runs == 1, "the journal is known before the worker serves"
        assert value(metrics, "infeed_worker_served_bytes_total") == 5
        assert value(metrics, "infeed_worker_connections") == 2
        assert value(metrics, "infeed_worker_idle_seconds") == 7
        assert value(metrics, "infeed_worker_tasks") == 3
        assert value(metrics, "infeed_worker_wedged") == 0
        assert monitor.readiness() == {"127.0.0.1:9": Readiness(True, "it answers")}
        task.error = "no dispatcher"
        assert monitor.readiness() == {"127.0.0.1:9": Readiness(False, "no dispatcher")}
        assert monitor.restart_reason is None, "the dispatcher may come back"
    assert not task.active


def test_new_journal_or_stuck_worker_requires_restart(task: FakeTask) -> None:
    monitor = WorkerMonitor()
    metrics = metrics_of(monitor)
    with monitor.watch(role()):
        task.reason = "a new journal"
        assert monitor.restart_reason == "a new journal"
        assert value(metrics, "infeed_worker_wedged") == 1
        monitor._stuck.reason = "rejected"
        assert monitor.restart_reason == "rejected"
    unwatched = WorkerMonitor()
    unwatched._stuck.reason = "rejected"
    assert unwatched.restart_reason == "rejected"


def test_new_journal_is_detected_and_absence_is_not(
    new_address: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detector = DispatcherRestartDetector(new_address())
    detector.run_once()
    detector.run_once()
    assert "Connection refused" in str(detector.error)
    assert caplog.text.count("the dispatcher does not answer") == 1
    journals = ["", "a", "a", "", "b"]
    infos = iter(ProcessInfo("2", journal=each) if each else None for each in journals)
    monkeypatch.setattr(module.process_info, "fetch", lambda *_: next(infos))
    for _ in journals[:-1]:
        detector.run_once()
        assert (detector.error, detector.reason) == (None, None)
    detector.run_once()
    assert "began a new journal (b, before a)" in str(detector.reason)
