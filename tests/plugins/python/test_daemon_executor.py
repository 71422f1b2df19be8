"""Tests of `daemon_executor.py`: calls in turn, and the exit of a process stuck in one."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from infeed_python.daemon_executor import DaemonExecutor


@pytest.mark.parametrize("error", [ValueError(), SystemExit(), KeyboardInterrupt()], ids=repr)
def test_errors_are_those_of_the_call(error: BaseException) -> None:
    executor = DaemonExecutor("test")

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        executor.submit(fail).result()
    assert executor.submit(lambda: 3).result() == 3
    executor.close()


def test_closed_executor_ends_what_it_has_and_takes_no_more() -> None:
    executor = DaemonExecutor("test")
    begin = threading.Event()
    call = executor.submit(begin.wait)
    executor.close()
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(begin.wait)
    begin.set()
    assert call.result()


def test_process_does_not_wait_for_a_call_that_hangs() -> None:
    code = (
        "import threading; from infeed_python.daemon_executor import DaemonExecutor; "
        "DaemonExecutor('test').submit(threading.Event().wait)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
