"""Processes that are started, watched, started again and ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infeed.errors import ServerError
from infeed_server.runtime import fleet
from infeed_server.runtime.fleet import Fleet

SERVES = """
import os, sys
with open(sys.argv[1], "a") as log: log.write(f"{os.getpid()}\\n")
print(f"serving on 127.0.0.1:1 (http 127.0.0.1:{os.getpid()})", flush=True)
sys.stdin.read()
"""
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


def test_a_process_that_does_not_end_is_killed(started: Any) -> None:
    found = started(STUBBORN, 1)
    found.stop(0.2)
    assert not is_alive(found.pids()[0])


def test_processes_see_that_the_parent_is_gone(started: Any) -> None:
    found = started(STUBBORN, 1)
    [worker] = found._workers
    worker._process.stdin.close()  # as the kernel does when the parent dies
    assert worker._process.wait(100) == 0
    found.stop(100)
