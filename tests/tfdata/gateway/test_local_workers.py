"""Tests of local worker processes, with processes that a test sets."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from infeed.shared.errors import ServerError
from infeed_server.config.address import Address
from infeed_tfdata.gateway import local_workers as module
from infeed_tfdata.gateway.local_workers import LocalWorkers

ADDRESS, HTTP = "127.0.0.1:1", "127.0.0.1:2"
ANY = Address("127.0.0.1", 0)


class FakeWorker:
    """A serving process, whose state a test sets."""

    name = "worker 0"

    def __init__(self, http: str | None = HTTP, status: int | None = None) -> None:
        self.address, self.http, self.status = ADDRESS, http, status
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def restart_exited(self) -> None:
        self.calls.append("restart_exited")

    def kill(self) -> None:
        self.calls.append("kill")


def local_workers(*fakes: FakeWorker) -> LocalWorkers:
    workers = LocalWorkers("127.0.0.1:9", [ANY] * len(fakes))
    workers._group.processes = list(fakes)  # type: ignore[assignment]
    return workers


def listen_of(workers: LocalWorkers, number: int = 0) -> str:
    worker = workers._group.processes[number]
    command = list(worker._command(worker.address))
    assert command[:4] == [sys.executable, "-m", "infeed", "worker"]
    assert command[command.index("--dispatcher") + 1] == "127.0.0.1:9"
    assert "--with-parent" in command
    listen = command[command.index("--listen") + 1]
    assert ("--insecure" in command) is listen.startswith("0.0.0.0")
    return listen


def test_worker_keeps_its_port() -> None:
    workers = LocalWorkers("127.0.0.1:9", [ANY, Address("127.0.0.1", 12)])
    assert [listen_of(workers, number) for number in (0, 1)] == ["127.0.0.1:0", "127.0.0.1:12"]
    workers._group.processes[0].address = ADDRESS
    assert listen_of(workers) == ADDRESS
    assert listen_of(LocalWorkers("127.0.0.1:9", [Address("0.0.0.0", 0)])) == "0.0.0.0:0"


def test_all_workers_start_before_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeWorker(http=None), FakeWorker(http=None)

    def sleep(_: float) -> None:
        assert [fake.calls for fake in fakes] == [["start"], ["start"]]
        for fake in fakes:
            fake.http = HTTP

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    local_workers(*fakes).start()


def test_worker_that_exits_instead_of_serving_is_an_error() -> None:
    with pytest.raises(ServerError, match="worker 0 ended with status 3"):
        local_workers(FakeWorker(http=None, status=3)).start()


def test_worker_that_hangs_is_killed_once(caplog: pytest.LogCaptureFixture) -> None:
    hung, starting, exited = FakeWorker(), FakeWorker(http=None), FakeWorker(status=-9)
    workers = local_workers(hung, starting, exited)
    workers.restart_failed()
    assert "kill" not in hung.calls
    for _ in range(2):  # until the restarted one answers, it counts as lost
        workers.restart_failed([ADDRESS])
    assert hung.calls.count("kill") == 1
    assert f"worker 0 at {ADDRESS} hangs and is killed" in caplog.text
    assert "kill" not in starting.calls + exited.calls
    workers.restart_failed()
    workers.restart_failed([ADDRESS])
    assert hung.calls.count("kill") == 2
