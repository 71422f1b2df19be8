"""The parent of several processes, whose children are replaced by none."""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from typing import Any

import pytest

from infeed_server.processes.signals import ShutdownSignal
from infeed_server.runtime import multiprocess
from infeed_server.runtime.options import ServerOptions


class FakeProcesses:
    """No process. When they are to end, it requests the readiness of their parent."""

    def __init__(self, *_: Any) -> None:
        self.http = ""
        self.seen: list[Any] = []

    def __call__(self, *_: Any) -> FakeProcesses:
        return self

    def http_addresses(self) -> list[str | None]:
        return [None, None]

    def start(self, _: Any) -> None: ...

    def restart_exited(self) -> None: ...

    def kill_hung(self, *_: Any) -> None: ...

    def stop(self, _: float) -> None:
        try:
            urllib.request.urlopen(f"http://{self.http}/readyz", timeout=60)
        except urllib.error.HTTPError as error:
            with error:
                self.seen.append(json.load(error)["reason"])


def test_port_of_a_server_that_has_just_ended_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as previous:
        listen = f"127.0.0.1:{previous.getsockname()[1]}"
        with socket.create_connection(previous.getsockname(), 60) as client:
            previous.accept()[0].close()
            assert client.recv(1) == b""  # the server's end is in TIME_WAIT when this one closes
    monkeypatch.setattr(FakeProcesses, "stop", lambda *_: None)
    monkeypatch.setattr(multiprocess, "ProcessGroup", FakeProcesses())
    announced, stop = [], ShutdownSignal()

    def announce(address: str, _: str | None) -> None:
        announced.append(address)
        stop.set()

    options = ServerOptions(listen, None, processes=2)
    multiprocess.serve_processes("pipelines.yaml", options, stop, announce)
    assert announced == [listen]


def test_a_signal_before_all_processes_serve_ends_with_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = ShutdownSignal()
    monkeypatch.setattr(FakeProcesses, "stop", lambda *_: None)

    def start(_: Any, stopped: Any) -> None:
        assert not stopped(0)
        stop._handle(signal.SIGTERM, None)

    monkeypatch.setattr(FakeProcesses, "start", start)
    monkeypatch.setattr(multiprocess, "ProcessGroup", FakeProcesses())
    options = ServerOptions("127.0.0.1:0", None, processes=2)
    with pytest.raises(SystemExit) as end:
        multiprocess.serve_processes("pipelines.yaml", options, stop, pytest.fail)
    assert end.value.code == 128 + signal.SIGTERM


def test_server_of_processes_that_end_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = FakeProcesses()
    monkeypatch.setattr(multiprocess, "ProcessGroup", processes)

    stop = ShutdownSignal()

    def announce(_: str, http: str | None) -> None:
        processes.http = http or ""
        stop.set()

    options = ServerOptions("127.0.0.1:0", "127.0.0.1:0", processes=2)
    multiprocess.serve_processes("pipelines.yaml", options, stop, announce)
    assert processes.seen == ["shutting down"]
