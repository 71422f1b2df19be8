"""Workers that are gone: noticed, their tasks ended, and taken back when they return."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tests.harness.nursery import ForkedProcess, Nursery
from tests.server.cluster.conftest import free_port

from infeed.errors import ServerUnavailableError
from infeed.inquiry import Dispatcher
from infeed.v1 import cluster_pb2 as messages
from infeed_server.cluster import lost as module
from infeed_server.cluster.dispatcher import DispatcherRole
from infeed_server.cluster.lost import LostWorkers
from infeed_server.cluster.worker import WorkerRole

SERVICE = tf.data.experimental.service
COUNT = 400


class Clock:
    """Seconds that a test lets pass."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Reading(threading.Thread):
    """Reads a job to its end, in a thread: one element for each `go`, then all."""

    def __init__(self, dispatcher: str, name: str) -> None:
        super().__init__(daemon=True)
        numbers = tf.data.Dataset.range(COUNT).map(lambda n: tf.fill([1000], n))
        self._found = numbers.apply(
            SERVICE.distribute(
                SERVICE.ShardingPolicy.DYNAMIC,
                f"grpc://{dispatcher}",
                job_name=name,
                max_outstanding_requests=2,
            )
        ).as_numpy_iterator()
        self.seen = [int(next(self._found)[0])]

    def run(self) -> None:
        self.seen.extend(int(each[0]) for each in self._found)

    def all(self) -> list[int]:
        self.start()
        self.join(200)
        assert not self.is_alive(), "the job does not end"
        return self.seen


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(dispatcher: DispatcherRole, clock: Clock) -> LostWorkers:
    return LostWorkers(dispatcher.local_address, 60, clock)


def tasks_of(dispatcher: DispatcherRole, worker: str) -> list[int]:
    """What the dispatcher believes a worker has to do."""
    answer = Dispatcher(dispatcher.address).ask(
        "WorkerHeartbeat",
        messages.WorkerHeartbeat(worker_address=worker),
        messages.WorkerHeartbeatAnswer,
    )
    return [task.task_id for task in answer.new_tasks]


def test_a_job_ends_without_a_worker_that_is_gone_for_good(
    dispatcher: DispatcherRole,
    worker: Callable[..., WorkerRole],
    watch: LostWorkers,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stays, goes = worker(), worker()
    reading = Reading(dispatcher.address, "with a loss")
    watch.look()
    assert all(seen.why is None for seen in watch.workers.values())
    goes.stop()
    watch.look()
    assert "Connection refused" in str(watch.workers[goes.address].why)
    clock.now = 59
    watch.look()
    assert not watch.workers[goes.address].lost
    assert tasks_of(dispatcher, goes.address)
    clock.now = 60
    watch.look()
    assert watch.workers[goes.address].lost
    assert f"worker {goes.address} has not answered for 60 s: lost" in caplog.text
    assert not watch.workers[stays.address].lost
    assert watch.ended_tasks == 1
    assert tasks_of(dispatcher, goes.address) == []
    watch.look()
    assert "0 tasks" not in caplog.text
    seen = reading.all()
    assert len(seen) == len(set(seen))
    print(f"{COUNT - len(seen)} of {COUNT} elements were lost")
    # What it had in its hands: the buffers of one task, not its half of the elements.
    assert COUNT - len(seen) < COUNT / 4
    # New jobs give it tasks again, for ever.
    again = Reading(dispatcher.address, "after the loss")
    watch.look()
    assert watch.ended_tasks == 2
    assert sorted(again.all()) == list(range(COUNT))


def test_while_nobody_is_there_a_job_waits(
    dispatcher: DispatcherRole,
    worker: Callable[..., WorkerRole],
    watch: LostWorkers,
    clock: Clock,
) -> None:
    goes = worker()
    reading = Reading(dispatcher.address, "waits")
    watch.look()
    goes.stop()
    clock.now = 100
    watch.look()
    assert watch.workers[goes.address].lost
    assert watch.ended_tasks == 0
    worker()
    watch.look()
    assert watch.ended_tasks == 1
    assert len(set(reading.all())) > COUNT / 2


def test_a_worker_that_nobody_ever_reached(
    dispatcher: DispatcherRole,
    worker: Callable[..., WorkerRole],
    watch: LostWorkers,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    tasks_of(dispatcher, nowhere)  # registers it
    worker()
    watch.look()
    clock.now = 60
    watch.look()
    assert f"worker {nowhere} registered, but does not answer at its advertised" in caplog.text


def test_a_dispatcher_that_is_gone_is_told_once(
    dispatcher: DispatcherRole, watch: LostWorkers, caplog: pytest.LogCaptureFixture
) -> None:
    watch.look()
    assert watch.workers == {}
    dispatcher.stop()
    watch.look()
    watch.look()
    assert caplog.text.count("the dispatcher does not tell its workers") == 1


class FakeDispatcher:
    """Says which workers there are, and which tasks each has."""

    def __init__(self, tasks: dict[str, list[int]]) -> None:
        self.tasks = tasks
        self.gone = False
        self.ended: list[int] = []

    def workers(self) -> list[str]:
        if self.gone:
            raise ServerUnavailableError("gone")
        return sorted(self.tasks)

    def ask(self, method: str, request: Any, response: Any) -> Any:
        if method == "WorkerUpdate":
            assert all(update.completed for update in request.updates)
            self.ended += [update.task_id for update in request.updates]
            return response()
        tasks = self.tasks[request.worker_address]
        return SimpleNamespace(new_tasks=[SimpleNamespace(task_id=task) for task in tasks])


def of_fakes(
    tasks: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> tuple[LostWorkers, FakeDispatcher]:
    """A watch over workers of which only "there" answers; each other one is lost at once."""
    fake = FakeDispatcher(tasks)
    monkeypatch.setattr(module, "_ask", lambda worker: 0 if worker == "there" else "no answer")
    watch = LostWorkers("127.0.0.1:1", 0)
    watch._dispatcher = fake  # type: ignore[assignment]
    return watch, fake


def test_all_tasks_of_lost_workers_are_ended_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, fake = of_fakes({"there": [1], "a": [2, 3], "b": [4]}, monkeypatch)
    watch.look()
    assert fake.ended == [2, 3, 4]
    assert watch.ended_tasks == 3


def test_no_task_is_ended_once_the_watch_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, fake = of_fakes({"there": [], "a": [2]}, monkeypatch)
    watch.stop()
    watch.look()
    assert fake.ended == []


def test_each_absence_of_the_dispatcher_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watch, fake = of_fakes({"there": []}, monkeypatch)
    for fake.gone in (True, True, False, True):
        watch.look()
    assert caplog.text.count("the dispatcher does not tell its workers") == 2


def test_it_looks_by_itself(
    dispatcher: DispatcherRole,
    worker: Callable[..., WorkerRole],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    address = worker().address
    watch = LostWorkers(dispatcher.address)
    with watch:
        deadline = time.monotonic() + 200
        while address not in watch.workers:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def worker_process(
    dispatcher: DispatcherRole, nursery: Nursery, tmp_path: Path
) -> Iterator[tuple[ForkedProcess, str]]:
    """A worker in a process of its own, and its address."""
    words = ["worker", "--dispatcher", dispatcher.address]
    words += ["--listen", "127.0.0.1:0", "--http", "off"]
    process = nursery.start(words, tmp_path / "worker", tmp_path)
    yield process, process.read_line().split()[2]
    process.kill()


def test_a_worker_that_hung_for_a_while_works_again(
    dispatcher: DispatcherRole,
    worker: Callable[..., WorkerRole],
    worker_process: Any,
    watch: LostWorkers,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ASK_SECONDS", 1.0)
    process, hangs = worker_process
    worker()
    first = Reading(dispatcher.address, "first")
    watch.look()
    process.signal(signal.SIGSTOP)
    clock.now = 60
    watch.look()
    assert watch.workers[hangs].lost
    assert watch.ended_tasks == 1
    process.signal(signal.SIGCONT)
    seen = first.all()
    assert len(seen) == len(set(seen)), "what was given up must not come after all"
    deadline = time.monotonic() + 200
    while watch.workers[hangs].lost:
        assert time.monotonic() < deadline
        watch.look()
    assert f"worker {hangs} is back" in caplog.text
    numbers = tf.data.Dataset.range(2).apply(
        SERVICE.distribute("parallel_epochs", f"grpc://{dispatcher.address}", job_name="later")
    )
    # Each worker gives all: so it takes part.
    assert sorted(int(each) for each in numbers.as_numpy_iterator()) == [0, 0, 1, 1]
