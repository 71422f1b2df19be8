"""Tests of the liveness of workers, and of the tasks of lost workers."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.clock import ManualClock
from tests.harness.nursery import ForkedProcess, Nursery

from infeed.shared.errors import ServerUnavailableError
from infeed.v1 import cluster_pb2 as messages
from infeed_service import rpc
from infeed_service.roles import liveness as module
from infeed_service.roles.dispatcher import DispatcherRole
from infeed_service.roles.liveness import WorkerLivenessMonitor
from infeed_service.roles.worker import WorkerRole
from infeed_service.rpc import DispatcherClient

SERVICE = tf.data.experimental.service
COUNT = 400


class JobClient(threading.Thread):
    """A client of a job: reads its first element at once, and the others on a thread."""

    def __init__(self, dispatcher: str, name: str) -> None:
        super().__init__(daemon=True)
        numbers = tf.data.Dataset.range(COUNT).map(lambda n: tf.fill([1000], n))
        self._iterator = numbers.apply(
            SERVICE.distribute(
                SERVICE.ShardingPolicy.DYNAMIC,
                f"grpc://{dispatcher}",
                job_name=name,
                max_outstanding_requests=2,
            )
        ).as_numpy_iterator()
        self.elements = [int(next(self._iterator)[0])]

    def run(self) -> None:
        self.elements.extend(int(element[0]) for element in self._iterator)

    def read_all(self) -> list[int]:
        self.start()
        self.join(200)
        assert not self.is_alive(), "the job does not end"
        return self.elements


@pytest.fixture(autouse=True)
def patient_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a worker takes seconds to answer."""
    monkeypatch.setattr(module, "_PROBE_TIMEOUT_SECONDS", 200.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def monitor(dispatcher: DispatcherRole, clock: ManualClock) -> WorkerLivenessMonitor:
    return WorkerLivenessMonitor(dispatcher.local_address, 60, clock)


def tasks_of(dispatcher: DispatcherRole, worker: str) -> list[int]:
    """Returns the tasks that the dispatcher assigns to a worker, which it registers."""
    answer = DispatcherClient(dispatcher.address).call(
        "WorkerHeartbeat",
        messages.WorkerHeartbeat(worker_address=worker),
        messages.WorkerHeartbeatAnswer,
    )
    return [task.task_id for task in answer.new_tasks]


def test_job_ends_without_a_lost_worker(
    dispatcher: DispatcherRole,
    worker: Callable[..., WorkerRole],
    monitor: WorkerLivenessMonitor,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, stopped = worker(), worker()
    job = JobClient(dispatcher.address, "with a loss")
    monitor.run_once()
    assert all(worker.ready for worker in monitor.readiness().values())
    stopped.stop()
    monitor.run_once()
    assert "Connection refused" in monitor.readiness()[stopped.address].reason
    clock.now = 59
    monitor.run_once()
    assert monitor.lost == ()
    assert tasks_of(dispatcher, stopped.address)
    clock.now = 60
    monitor.run_once()
    assert monitor.lost == (stopped.address,)
    assert f"worker {stopped.address} is lost: no answer for 60 s" in caplog.text
    assert monitor.ended_tasks == 1
    assert tasks_of(dispatcher, stopped.address) == []
    monitor.run_once()
    assert "0 tasks" not in caplog.text
    elements = job.read_all()
    assert len(elements) == len(set(elements))
    print(f"{COUNT - len(elements)} of {COUNT} elements were lost")
    # The buffers of one task are lost, not the worker's half of the elements.
    assert COUNT - len(elements) < COUNT / 4
    # Every new job assigns tasks to the lost worker.
    again = JobClient(dispatcher.address, "after the loss")
    monitor.run_once()
    assert monitor.ended_tasks == 2
    assert sorted(again.read_all()) == list(range(COUNT))


class FakeDispatcher:
    """A dispatcher with given workers and their tasks."""

    def __init__(self, tasks: dict[str, list[int]]) -> None:
        self.tasks = tasks
        self.ended: list[int] = []
        self.lost: list[Sequence[str]] = []

    def get_workers(self) -> list[str]:
        return sorted(self.tasks)

    def call(self, method: str, request: Any, response: Any) -> Any:
        if method == "WorkerUpdate":
            assert all(update.completed for update in request.updates)
            self.ended += [update.task_id for update in request.updates]
            return response()
        tasks = self.tasks[request.worker_address]
        return SimpleNamespace(new_tasks=[SimpleNamespace(task_id=task) for task in tasks])


def monitor_of(
    tasks: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> tuple[WorkerLivenessMonitor, FakeDispatcher]:
    """Returns a monitor of workers where only "alive" answers; the others are lost at once."""
    fake = FakeDispatcher(tasks)

    def get_worker_tasks(worker: str, _: float) -> list[int]:
        if worker != "alive":
            raise ServerUnavailableError("no answer")
        return []

    monkeypatch.setattr(rpc, "get_worker_tasks", get_worker_tasks)
    monitor = WorkerLivenessMonitor("127.0.0.1:1", 0, on_lost=fake.lost.append)
    monitor._dispatcher = monitor._workers._dispatcher = fake  # type: ignore[assignment]
    return monitor, fake


def test_tasks_of_lost_workers_only_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor, fake = monitor_of({"alive": [1], "a": [2, 3], "b": [4]}, monkeypatch)
    for _ in range(2):
        monitor.run_once()
    assert fake.ended == [2, 3, 4] * 2
    assert monitor.ended_tasks == 6
    assert fake.lost == [["a", "b"], []]


def test_no_task_is_ended_while_no_worker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor, fake = monitor_of({"a": [2]}, monkeypatch)
    monitor.run_once()
    assert (monitor.lost, fake.ended) == (("a",), [])


@pytest.fixture
def worker_process(
    dispatcher: DispatcherRole, nursery: Nursery, tmp_path: Path
) -> Iterator[tuple[ForkedProcess, str]]:
    """A worker in its own process, and its address."""
    words = ["worker", "--dispatcher", dispatcher.address]
    words += ["--listen", "127.0.0.1:0", "--http", "off"]
    process = nursery.start(words, tmp_path / "worker", tmp_path)
    yield process, process.read_line().split()[2]
    process.kill()


@pytest.mark.slow
def test_worker_that_hung_receives_tasks_again(
    dispatcher: DispatcherRole,
    worker: Callable[..., WorkerRole],
    worker_process: Any,
    monitor: WorkerLivenessMonitor,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monitor._workers._timeout = 1.0
    process, hung = worker_process
    worker()
    first = JobClient(dispatcher.address, "first")
    monitor.run_once()
    process.halt()
    monitor.run_once()
    clock.now = 60
    deadline = time.monotonic() + 200
    while monitor.ended_tasks == 0:  # on a busy machine, the other worker may answer too late
        assert time.monotonic() < deadline
        monitor.run_once()
    assert hung in monitor.lost
    assert monitor.ended_tasks == 1
    process.signal(signal.SIGCONT)
    elements = first.read_all()
    assert len(elements) == len(set(elements)), "elements that were given up must not arrive"
    deadline = time.monotonic() + 200
    while hung in monitor.lost:
        assert time.monotonic() < deadline
        monitor.run_once()
    assert f"worker {hung} is back" in caplog.text
    numbers = tf.data.Dataset.range(2).apply(
        SERVICE.distribute("parallel_epochs", f"grpc://{dispatcher.address}", job_name="later")
    )
    # Each worker gives all elements, so both have a task.
    assert sorted(int(element) for element in numbers.as_numpy_iterator()) == [0, 0, 1, 1]
