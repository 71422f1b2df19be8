"""What a worker and a dispatcher show of their work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infeed_server.cluster.lost import Seen
from infeed_server.control.health import Readiness
from infeed_server.control.role import RoleMetrics
from infeed_server.runtime import work as module
from infeed_server.runtime.shown_workers import ShownWorkers
from infeed_server.runtime.work import Work


def value(metrics: RoleMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def metrics_of(shown: Work | ShownWorkers) -> RoleMetrics:
    metrics = RoleMetrics("role", "1", "2")
    shown.measure(metrics)
    return metrics


class Watch:
    """What stands for `Served` and `JournalWatch`."""

    bytes, connections, idle_seconds = 5, 2, 7.0
    away: str | None = None
    reason: str | None = None
    looks = 0
    inside = False

    def look(self) -> None:
        self.looks += 1

    def __enter__(self) -> None:
        self.inside = True

    def __exit__(self, *_: object) -> None:
        self.inside = False


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch()
    monkeypatch.setattr(module, "Served", lambda port: found)
    monkeypatch.setattr(module, "JournalWatch", lambda dispatcher: found)
    return found


def role() -> Any:
    return SimpleNamespace(port=1, dispatcher="127.0.0.1:9", tasks=3)


def test_before_it_is_watched_a_worker_shows_nothing() -> None:
    work = Work()
    metrics = metrics_of(work)
    assert work.stuck is None
    assert work.readiness() == {}
    for name in ("served_bytes_total", "connections", "idle_seconds", "tasks", "wedged"):
        assert value(metrics, f"infeed_worker_{name}") == 0


def test_a_worker_shows_what_is_counted_of_it(watch: Watch) -> None:
    work = Work()
    metrics = metrics_of(work)
    with work.watch(role()):
        assert watch.inside
        assert watch.looks == 1, "the journal is known before anything is served"
        assert value(metrics, "infeed_worker_served_bytes_total") == 5
        assert value(metrics, "infeed_worker_connections") == 2
        assert value(metrics, "infeed_worker_idle_seconds") == 7
        assert value(metrics, "infeed_worker_tasks") == 3
        assert value(metrics, "infeed_worker_wedged") == 0
        assert work.readiness() == {"127.0.0.1:9": Readiness(True, "it answers")}
        watch.away = "no dispatcher"
        assert work.readiness() == {"127.0.0.1:9": Readiness(False, "no dispatcher")}
        assert work.stuck is None, "a dispatcher that is away may come back"
    assert not watch.inside


def test_a_worker_is_stuck_by_a_new_journal_or_by_what_tensorflow_writes(watch: Watch) -> None:
    work = Work()
    metrics = metrics_of(work)
    with work.watch(role()):
        watch.reason = "a new journal"
        assert work.stuck == "a new journal"
        assert value(metrics, "infeed_worker_wedged") == 1
        work._wedge.reason = "refused"
        assert work.stuck == "refused"
    other = Work()
    other._wedge.reason = "refused"
    assert other.stuck == "refused"


def shown(others: dict[str, str], **workers: Seen) -> ShownWorkers:
    found = ShownWorkers()
    lost: Any = SimpleNamespace(workers=workers, ended_tasks=4)
    versions: Any = SimpleNamespace(others=others)
    found.watch(lost, versions)
    return found


def test_before_they_are_watched_no_workers_are_shown() -> None:
    workers = ShownWorkers()
    metrics = metrics_of(workers)
    assert workers.readiness() == {}
    assert value(metrics, "infeed_dispatcher_workers") == 0
    assert value(metrics, "infeed_dispatcher_lost_tasks_total") == 0


def test_each_worker_is_shown_with_what_is_wrong_with_it() -> None:
    workers = shown(
        {"worker other": "2.20", "worker away": "2.20"},
        there=Seen(0, True, tasks=2),
        other=Seen(0, True),
        away=Seen(0, True, why="refused"),
        lost=Seen(0, True, why="refused", lost=True),
    )
    assert workers.readiness() == {
        "there": Readiness(True, "has 2 tasks"),
        "other": Readiness(False, "it runs TensorFlow 2.20, which is not the dispatcher's"),
        "away": Readiness(False, "does not answer: refused"),
        "lost": Readiness(False, "lost: refused"),
    }
    metrics = metrics_of(workers)
    assert value(metrics, "infeed_dispatcher_workers") == 4
    assert value(metrics, "infeed_dispatcher_lost_tasks_total") == 4
    reachable = {
        name: value(metrics, "infeed_dispatcher_worker_reachable", worker=name)
        for name in ("there", "other", "away", "lost")
    }
    assert reachable == {"there": 1, "other": 1, "away": 0, "lost": 0}
