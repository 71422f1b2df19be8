"""Tests of a server's worker processes: command line, restart, probes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.clock import ManualClock

from infeed.shared.errors import ServerError, ServerUnavailableError
from infeed_server.data_service.gateway import local_workers as module
from infeed_server.data_service.gateway.local_workers import HUNG_TIMEOUT_SECONDS, LocalWorkers

ADDRESS, HTTP = "127.0.0.1:1", "127.0.0.1:2"


class FakeWorker:
    """A serving process, whose state a test sets."""

    name = "worker 0"

    def __init__(self, http: str | None = HTTP, status: int | None = None) -> None:
        self.address, self.http, self.status = ADDRESS, http, status
        self.calls: list[str] = []
        self.logs_kill: bool | None = None

    def start(self) -> None:
        self.calls.append("start")

    def restart_exited(self) -> None:
        self.calls.append("restart_exited")

    def kill(self) -> None:
        self.calls.append("kill")

    def terminate(self) -> None:
        self.calls.append("terminate")

    def wait(self, deadline: float, *, log_kill: bool = True) -> None:
        self.calls.append("wait")
        self.logs_kill = log_kill


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    fake = ManualClock(1000.0)
    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: fake.now, sleep=time.sleep)
    )
    return fake


class FakeProbes:
    """Probes that a test makes itself."""

    started = stopped = False

    def start(self) -> None:
        self.started = True

    def stop(self) -> None:
        self.stopped = True


def local_workers(*fakes: FakeWorker) -> LocalWorkers:
    """Returns workers without probes of their own."""
    workers = LocalWorkers(len(fakes), "127.0.0.1:9")
    workers._group.processes = list(fakes)  # type: ignore[assignment]
    workers._probes = FakeProbes()  # type: ignore[assignment]
    return workers


def running(*fakes: FakeWorker) -> LocalWorkers:
    workers = local_workers(*fakes)
    workers.start()
    assert workers._probes.started  # type: ignore[attr-defined]
    return workers


def command_of(workers: LocalWorkers, number: int = 0) -> list[str]:
    worker = workers._group.processes[number]
    return list(worker._command(worker.address))


def test_worker_takes_a_free_port_and_keeps_it() -> None:
    workers = LocalWorkers(1, "127.0.0.1:9")
    command = command_of(workers)
    assert command[:6] == [sys.executable, "-m", "infeed", "worker", "--dispatcher", "127.0.0.1:9"]
    assert command[command.index("--listen") + 1] == "127.0.0.1:0"
    assert "--with-parent" in command
    assert "--insecure" not in command
    workers._group.processes[0].address = ADDRESS
    command = command_of(workers)
    assert command[command.index("--listen") + 1] == ADDRESS


def test_workers_listen_at_given_addresses() -> None:
    workers = LocalWorkers(2, "127.0.0.1:9", addresses=["127.0.0.1:11", "127.0.0.1:12"])
    for number, address in enumerate(["127.0.0.1:11", "127.0.0.1:12"]):
        assert address in command_of(workers, number)


def test_workers_on_a_wildcard_address_are_insecure() -> None:
    command = command_of(LocalWorkers(1, "10.0.0.3:9", host="0.0.0.0"))
    assert command[command.index("--listen") + 1] == "0.0.0.0:0"
    assert "--insecure" in command


def test_all_workers_start_before_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = FakeWorker(http=None), FakeWorker(http=None)

    def sleep(_: float) -> None:
        assert [fake.calls for fake in fakes] == [["start"], ["start"]]
        for fake in fakes:
            fake.http = HTTP

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    workers = local_workers(*fakes)
    workers.start()
    assert workers._group.http_addresses() == [HTTP, HTTP]


def test_worker_that_exits_instead_of_serving_is_an_error() -> None:
    with pytest.raises(ServerError, match="worker 0 ended with status 3"):
        running(FakeWorker(http=None, status=3))


def test_worker_that_hangs_is_killed(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    hung, answering = FakeWorker(), FakeWorker()
    workers = running(hung, answering)
    workers._errors[0] = "no answer"
    clock.now += HUNG_TIMEOUT_SECONDS - 1
    workers._last_answers[1] = clock.now
    workers.restart_failed()
    assert "kill" not in hung.calls
    clock.now += 1
    workers.restart_failed()
    assert hung.calls == ["start", "restart_exited", "kill", "restart_exited"]
    assert answering.calls == ["start", "restart_exited", "restart_exited"]
    assert (
        f"worker 0 at {ADDRESS} has not answered for 30 s and is killed: no answer" in caplog.text
    )
    workers.restart_failed()
    assert hung.calls.count("kill") == 1, "the timeout begins again"


def test_starting_or_exited_worker_is_not_killed(clock: ManualClock) -> None:
    starting, exited = FakeWorker(), FakeWorker()
    workers = running(starting, exited)
    starting.http, exited.status = None, -9
    clock.now += HUNG_TIMEOUT_SECONDS
    workers.restart_failed()
    starting.http = HTTP
    workers.restart_failed()
    assert "kill" not in starting.calls + exited.calls


def test_all_workers_are_terminated_before_the_wait() -> None:
    order: list[str] = []
    fakes = FakeWorker(), FakeWorker()
    workers = running(*fakes)
    for fake in fakes:
        fake.calls = order
    workers.stop(5)
    assert workers._probes.stopped  # type: ignore[attr-defined]
    assert order == ["terminate", "terminate", "wait", "wait"]
    assert [fake.logs_kill for fake in fakes] == [False] * 2


@pytest.fixture
def metrics() -> Iterator[SimpleNamespace]:
    """A control plane: its response, and its address."""
    plane = SimpleNamespace(status=200, text="infeed_worker_served_bytes_total 12.0\n")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/metrics"
            self.send_response(plane.status)
            self.end_headers()
            self.wfile.write(plane.text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        plane.address = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield plane
        server.shutdown()
        thread.join()


def test_answered_probe_updates_time_and_bytes(
    metrics: SimpleNamespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "get_worker_tasks", lambda *_: [])
    workers = running(FakeWorker(http=metrics.address))
    clock.now += 20
    workers.probe()
    assert workers._last_answers == [clock.now]
    assert workers.sent_bytes == {ADDRESS: 12.0}


def test_failed_probe_does_not_count_as_an_answer(
    metrics: SimpleNamespace, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise ServerUnavailableError("unavailable")

    monkeypatch.setattr(module, "get_worker_tasks", lambda *_: [])
    workers = running(FakeWorker(http=metrics.address))
    clock.now += 20
    metrics.status, metrics.text = 503, ""
    workers.probe()
    assert "/metrics answers with status 503" in workers._errors[0]
    metrics.text = "infeed_worker_served_bytes_total 12.0\n"
    monkeypatch.setattr(module, "get_worker_tasks", unavailable)
    workers.probe()
    assert workers._errors == ["unavailable"]
    assert workers._last_answers == [clock.now - 20]


def test_starting_worker_is_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[object] = []
    monkeypatch.setattr(module, "_fetch_sent_bytes", fetched.append)
    workers = running(FakeWorker())
    workers._group.processes[0].http = None
    workers.probe()
    workers._group.processes[0].http, workers._group.processes[0].address = HTTP, None
    workers.probe()
    assert fetched == []
