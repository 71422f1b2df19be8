"""Processes that are started, watched, started again and ended."""

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

from infeed.errors import ServerError
from infeed_server.runtime import fleet
from infeed_server.runtime.fleet import Fleet, Worker

SERVES = """
import os, sys
with open(sys.argv[1], "a") as log: log.write(f"{os.getpid()}\\n")
print(f"serving on 127.0.0.1:1 (http 127.0.0.1:{os.getpid()})", flush=True)
sys.stdin.read()
"""
# Neither a signal nor the end of its parent ends it.
ENDLESS = SERVES.replace("sys.stdin.read()", "").replace("import os", "import time, os")
ENDLESS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS
ENDLESS += "while True: time.sleep(1000)\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVES


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts fleets that end with the test; `pids` holds the processes they ever had."""
    fleets: list[Fleet] = []
    log = tmp_path / "log"

    def start(code: str, count: int = 2) -> Any:
        found = Fleet([sys.executable, "-c", code, str(log)], count)
        fleets.append(found)
        found.pids = lambda: [int(line) for line in log.read_text().split()]  # type: ignore[attr-defined]
        found.start(waits(100))
        return found

    yield start
    for found in fleets:
        found.stop(0.2)


def waits(seconds: float) -> Callable[[float], bool]:
    """A `stopped` that gives up after so many seconds."""
    deadline = time.monotonic() + seconds

    def stopped(pause: float) -> bool:
        time.sleep(pause)
        return time.monotonic() > deadline

    return stopped


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_all_processes_serve(started: Any) -> None:
    found = started(SERVES, 3)
    assert sorted(found.http_addresses()) == sorted(f"127.0.0.1:{pid}" for pid in found.pids())
    assert all(os.getsid(pid) == pid for pid in found.pids()), "Ctrl-C is for the parent"
    found.stop(100)
    assert not any(is_alive(pid) for pid in found.pids())


def test_a_process_that_dies_is_started_again(
    started: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fleet, "LONGEST_PAUSE", 0.1)
    found = started(SERVES)
    victim = found.pids()[0]
    os.kill(victim, signal.SIGKILL)
    stopped = waits(100)
    while not stopped(0.01) and (len(found.pids()) < 3 or None in found.http_addresses()):
        found.tend()
    assert len(found.pids()) == 3
    assert f"127.0.0.1:{victim}" not in found.http_addresses()
    assert "process 0 ended with status -9; starting it again in 0.1 s" in caplog.text


def test_the_others_wait_for_the_first(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    start = fleet.Worker.start

    def noted(worker: fleet.Worker) -> None:
        begun.append(worker.name)
        start(worker)

    monkeypatch.setattr(fleet.Worker, "start", noted)
    with pytest.raises(ServerError, match="first process ended with status 3"):
        started("import sys; sys.exit(3)", 3)
    assert begun == ["process 0"]


def test_a_stop_while_starting(tmp_path: Path) -> None:
    found = Fleet([sys.executable, "-c", "import sys; sys.stdin.read()"], 2)
    found.start(waits(0.2))
    assert found.http_addresses() == [None, None]
    found.stop(100)


def test_a_process_that_does_not_end_is_killed(
    started: Any, caplog: pytest.LogCaptureFixture
) -> None:
    found = started(ENDLESS, 1)
    found.stop(0.2)
    assert not is_alive(found.pids()[0])
    assert "process 0 does not end; killed" in caplog.text


class Ended:
    """A process that has ended, for a worker that is never really started."""

    stdin = None

    def poll(self) -> int:
        return 1


def test_pauses_grow_while_a_process_keeps_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(fleet, "time", SimpleNamespace(monotonic=lambda: clock.now))
    begun: list[float] = []

    def start(worker: Worker) -> None:
        begun.append(clock.now)
        worker._begun, worker._due = clock.now, None
        worker._process, worker.http = Ended(), "127.0.0.1:1"  # type: ignore[assignment]

    monkeypatch.setattr(Worker, "start", start)
    worker = Worker("worker", lambda _: [])
    worker.start()
    for pause in (2, 4, 8, 16, 30, 30):
        worker.tend()
        assert worker.http is None
        clock.now += pause - 0.5
        worker.tend()
        assert begun[-1] == clock.now - pause + 0.5, "its pause is not over"
        clock.now += 0.5
        worker.tend()
        assert begun[-1] == clock.now
    clock.now += fleet.STEADY_SECONDS
    worker.tend()
    clock.now += fleet.FIRST_PAUSE
    worker.tend()
    assert begun[-1] == clock.now, "it lasted: its pause is short again"


def test_a_process_that_is_started_again_is_told_where_it_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LONGEST_PAUSE", 0.01)
    told: list[str | None] = []

    def command(address: str | None) -> list[str]:
        told.append(address)
        return [sys.executable, "-c", SERVES, str(tmp_path / "log")]

    worker = Worker("worker", command)
    worker.start()
    stopped = waits(100)
    try:
        while worker.http is None:
            assert not stopped(0.01)
        worker.kill()
        while len(told) < 2:
            assert not stopped(0.01)
            worker.tend()
    finally:
        worker.terminate()
        worker.wait(time.monotonic() + 100)
    assert told == [None, "127.0.0.1:1"]


def test_processes_see_that_the_parent_is_gone(started: Any) -> None:
    found = started(STUBBORN, 1)
    [worker] = found._workers
    worker._process.stdin.close()  # as the kernel does when the parent dies
    assert worker._process.wait(100) == 0
    found.stop(100)
