"""Worker processes of a server: what they are started with, and those that hang."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from infeed.errors import ServerError, ServerUnavailableError
from infeed_server.runtime import local_workers as module
from infeed_server.runtime.local_workers import HUNG_SECONDS, LocalWorkers

ADDRESS, HTTP = "127.0.0.1:1", "127.0.0.1:2"


class FakeWorker:
    """A process that serves, until a test says otherwise."""

    name = "worker 0"

    def __init__(self, http: str | None = HTTP, status: int | None = None) -> None:
        self.address, self.http, self.status = ADDRESS, http, status
        self.calls: list[str] = []
        self.waited: tuple[float, bool] | None = None

    def start(self) -> None:
        self.calls.append("start")

    def tend(self) -> None:
        self.calls.append("tend")

    def kill(self) -> None:
        self.calls.append("kill")

    def terminate(self) -> None:
        self.calls.append("terminate")

    def wait(self, deadline: float, *, told: bool = True) -> None:
        self.calls.append("wait")
        self.waited = deadline, told


class Clock:
    """Seconds that a test lets pass."""

    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def running(*fakes: FakeWorker) -> LocalWorkers:
    """Workers that have begun, but are asked nothing by themselves."""
    workers = LocalWorkers(len(fakes), "127.0.0.1:9")
    workers._workers = list(fakes)  # type: ignore[assignment]
    begun: list[bool] = []
    workers.start = lambda: begun.append(True)  # type: ignore[method-assign]
    workers.begin(lambda _: False)
    assert begun, "it looks after them from now on"
    return workers


def words(workers: LocalWorkers, number: int = 0) -> list[str]:
    worker = workers._workers[number]
    return list(worker._command(worker.address))


def test_a_worker_takes_a_free_port_at_first_and_its_own_later() -> None:
    workers = LocalWorkers(1, "127.0.0.1:9")
    told = words(workers)
    assert told[:6] == [sys.executable, "-m", "infeed", "worker", "--dispatcher", "127.0.0.1:9"]
    assert told[told.index("--listen") + 1] == "127.0.0.1:0"
    assert "--with-parent" in told
    assert "--insecure" not in told
    workers._workers[0].address = ADDRESS
    told = words(workers)
    assert told[told.index("--listen") + 1] == ADDRESS


def test_workers_of_a_journal_listen_where_they_did() -> None:
    workers = LocalWorkers(2, "127.0.0.1:9", addresses=["127.0.0.1:11", "127.0.0.1:12"])
    assert workers.addresses() == ["127.0.0.1:11", "127.0.0.1:12"]
    for number, address in enumerate(workers.addresses()):
        assert str(address) in words(workers, number)


def test_workers_for_other_machines_are_insecure() -> None:
    told = words(LocalWorkers(1, "10.0.0.3:9", host="0.0.0.0"))
    assert told[told.index("--listen") + 1] == "0.0.0.0:0"
    assert "--insecure" in told


def test_all_are_started_before_any_is_waited_for() -> None:
    fakes = FakeWorker(http=None), FakeWorker(http=None)

    def stopped(_: float) -> bool:
        assert [fake.calls for fake in fakes] == [["start"], ["start"]]
        for fake in fakes:
            fake.http = HTTP
        return False

    workers = LocalWorkers(2, "127.0.0.1:9")
    workers._workers = list(fakes)  # type: ignore[assignment]
    workers.begin(stopped)
    workers.stop()
    assert workers.http_addresses() == [HTTP, HTTP]


def test_one_that_ends_instead_of_serving_is_an_error() -> None:
    with pytest.raises(ServerError, match="worker 0 ended with status 3"):
        running(FakeWorker(http=None, status=3))


def test_a_stop_ends_the_start() -> None:
    workers = LocalWorkers(1, "127.0.0.1:9")
    workers._workers = [FakeWorker(http=None)]  # type: ignore[list-item]
    workers.begin(lambda _: True)
    workers.stop()


def test_a_worker_that_does_not_answer_for_too_long_is_killed(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, answers = FakeWorker(), FakeWorker()
    workers = running(hangs, answers)
    workers._why[0] = "no answer"
    clock.now += HUNG_SECONDS - 1
    workers._heard[1] = clock.now
    workers.tend()
    assert "kill" not in hangs.calls
    clock.now += 1
    workers.tend()
    assert hangs.calls == ["start", "tend", "kill", "tend"]
    assert answers.calls == ["start", "tend", "tend"]
    assert (
        f"worker 0 at {ADDRESS} has not answered for 30 s and is killed: no answer" in caplog.text
    )
    workers.tend()
    assert hangs.calls.count("kill") == 1, "it has as long again"


def test_a_worker_that_starts_or_has_ended_does_not_hang(clock: Clock) -> None:
    starts, ended = FakeWorker(), FakeWorker()
    workers = running(starts, ended)
    starts.http, ended.status = None, -9
    clock.now += HUNG_SECONDS
    workers.tend()
    starts.http = HTTP
    workers.tend()
    assert "kill" not in starts.calls + ended.calls


def test_at_the_end_all_are_told_before_any_is_waited_for(clock: Clock) -> None:
    order: list[str] = []
    fakes = FakeWorker(), FakeWorker()
    workers = running(*fakes)
    for fake in fakes:
        fake.calls = order
    workers.end(5)
    assert workers._ending.is_set(), "they are asked nothing any more"
    assert order == ["terminate", "terminate", "wait", "wait"]
    assert [fake.waited for fake in fakes] == [(clock.now + 5, False)] * 2


@pytest.fixture
def metrics() -> Iterator[SimpleNamespace]:
    """A control plane: what it answers, and where."""
    found = SimpleNamespace(status=200, text="infeed_worker_served_bytes_total 12.0\n")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/metrics"
            self.send_response(found.status)
            self.end_headers()
            self.wfile.write(found.text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        found.address = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_an_answer_is_noted_with_the_bytes_that_were_sent(
    metrics: SimpleNamespace, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "worker_tasks", lambda *_: [])
    workers = running(FakeWorker(http=metrics.address))
    clock.now += 20
    workers.look()
    assert workers._heard == [clock.now]
    assert workers.served == {ADDRESS: 12.0}


def test_a_worker_whose_control_plane_or_tasks_fail_has_not_answered(
    metrics: SimpleNamespace, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise ServerUnavailableError("it says nothing")

    monkeypatch.setattr(module, "worker_tasks", lambda *_: [])
    workers = running(FakeWorker(http=metrics.address))
    clock.now += 20
    metrics.status, metrics.text = 503, ""
    workers.look()
    assert "/metrics answers with status 503" in workers._why[0]
    metrics.text = "infeed_worker_served_bytes_total 12.0\n"
    monkeypatch.setattr(module, "worker_tasks", silent)
    workers.look()
    assert workers._why == ["it says nothing"]
    assert workers._heard == [clock.now - 20]


def test_a_worker_that_starts_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(module, "_served_bytes", asked.append)
    workers = running(FakeWorker())
    workers._workers[0].http = None
    workers.look()
    workers._workers[0].http, workers._workers[0].address = HTTP, None
    workers.look()
    assert asked == []
