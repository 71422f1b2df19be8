"""Tests of `processes/supervisor.py`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.harness.children import is_alive

from infeed.shared.errors import ServerError
from infeed_server.processes import supervisor
from infeed_server.processes.supervisor import ChildProcess, ProcessGroup

SERVES = """
import os, sys
with open(sys.argv[1], "a") as log: log.write(f"{os.getpid()}\\n")
print(f"serving on 127.0.0.1:1 (http 127.0.0.1:{os.getpid()})", flush=True)
sys.stdin.read()
"""
# Ignores SIGTERM and the end of standard input.
NEVER_EXITS = SERVES.replace("sys.stdin.read()", "").replace("import os", "import time, os")
NEVER_EXITS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + NEVER_EXITS
NEVER_EXITS += "while True: time.sleep(1000)\n"
# The first process serves, all others exit.
ONE_SERVES = SERVES.replace(
    "print(", "if len(open(sys.argv[1]).readlines()) > 1: sys.exit(4)\nprint("
)
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVES


@pytest.fixture
def start_group(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts groups that end with the test; `pids()` are all processes that a group started."""
    groups: list[ProcessGroup] = []
    log = tmp_path / "log"

    def start(code: str, count: int = 2) -> Any:
        group = ProcessGroup("process", count, lambda _: [sys.executable, "-c", code, str(log)])
        groups.append(group)
        group.pids = lambda: [int(line) for line in log.read_text().split()]  # type: ignore[attr-defined]
        group.start(stopped_after(100))
        return group

    yield start
    for group in groups:
        group.stop(0.2)


def stopped_after(seconds: float) -> Callable[[float], bool]:
    """Returns a `stopped` that gives up after some seconds."""
    deadline = time.monotonic() + seconds

    def stopped(pause: float) -> bool:
        time.sleep(pause)
        return time.monotonic() > deadline

    return stopped


def test_all_processes_serve_and_stop(start_group: Any) -> None:
    group = start_group(SERVES, 3)
    assert sorted(group.http_addresses()) == sorted(f"127.0.0.1:{pid}" for pid in group.pids())
    assert all(os.getsid(pid) == pid for pid in group.pids()), "Ctrl-C is for the parent"
    group.stop(100)
    assert not any(is_alive(pid) for pid in group.pids())


def test_exited_process_is_restarted(
    start_group: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "MAX_BACKOFF_SECONDS", 0.1)
    group = start_group(SERVES)
    victim = group.pids()[0]
    os.kill(victim, signal.SIGKILL)
    stopped = stopped_after(100)
    while not stopped(0.01) and (len(group.pids()) < 3 or None in group.http_addresses()):
        group.restart_exited()
    assert len(group.pids()) == 3
    assert f"127.0.0.1:{victim}" not in group.http_addresses()
    assert "process 0 ended with status -9; restarting it in 0.1 s" in caplog.text


def test_failed_first_process_starts_no_others(
    start_group: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = ChildProcess.start
    monkeypatch.setattr(
        ChildProcess, "start", lambda process: started.append(process.name) or start(process)
    )
    with pytest.raises(ServerError, match="first process ended with status 3"):
        start_group("import sys; sys.exit(3)", 3)
    assert started == ["process 0"]


def test_start_does_not_wait_for_a_process_that_exits(start_group: Any) -> None:
    group = start_group(ONE_SERVES)
    assert group.http_addresses() == [f"127.0.0.1:{group.pids()[0]}", None]
    assert len(group.pids()) == 2  # its backoff is not over


def test_process_that_ignores_sigterm_is_killed(
    start_group: Any, caplog: pytest.LogCaptureFixture
) -> None:
    group = start_group(NEVER_EXITS, 1)
    group.stop(0.2)
    assert not is_alive(group.pids()[0])
    assert "process 0 did not end in time; killed" in caplog.text


class ExitedProcess:
    """A stand-in for an exited `Popen`."""

    stdin = None

    def poll(self) -> int:
        return 1


def test_backoff_grows_while_process_keeps_exiting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: clock.now))
    starts: list[float] = []

    def start(process: ChildProcess) -> None:
        starts.append(clock.now)
        process._started_at, process._restart_at = clock.now, None
        process._process, process.http = ExitedProcess(), "127.0.0.1:1"  # type: ignore[assignment]

    monkeypatch.setattr(ChildProcess, "start", start)
    process = ChildProcess("process", lambda _: [])
    process.start()
    for backoff in (2, 4, 8, 16, 30, 30):
        process.restart_exited()
        assert process.http is None
        clock.now += backoff - 0.5
        process.restart_exited()
        assert starts[-1] == clock.now - backoff + 0.5, "its backoff is not over"
        clock.now += 0.5
        process.restart_exited()
        assert starts[-1] == clock.now
    clock.now += supervisor.STABLE_RUN_SECONDS
    process.restart_exited()
    clock.now += supervisor.MIN_BACKOFF_SECONDS
    process.restart_exited()
    assert starts[-1] == clock.now, "a stable run resets the backoff"


def test_restart_gets_the_previous_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_BACKOFF_SECONDS", 0.01)
    addresses: list[str | None] = []

    def command(address: str | None) -> list[str]:
        addresses.append(address)
        return [sys.executable, "-c", SERVES, str(tmp_path / "log")]

    process = ChildProcess("process", command)
    process.start()
    stopped = stopped_after(100)
    try:
        while process.http is None:
            assert not stopped(0.01)
        process.kill()
        while len(addresses) < 2:
            assert not stopped(0.01)
            process.restart_exited()
    finally:
        process.terminate()
        process.wait(time.monotonic() + 100)
    assert addresses == [None, "127.0.0.1:1"]


def test_process_ends_when_standard_input_closes(start_group: Any) -> None:
    group = start_group(IGNORES_SIGTERM, 1)
    [process] = group.processes
    process._process.stdin.close()  # as the kernel does when the parent dies
    assert process._process.wait(100) == 0
    group.stop(100)
