"""Signals, each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

# Tells when it is ready, then does as it is told.
# Never run in the process of the tests: a stop ends its process, sooner or later.
PROGRAM = """
import ctypes, sys, time
from infeed_server.runtime import signals
signals._END_SECONDS = 0.3
stop = signals.Stop()
stop.install()
kind = sys.argv[1]
print("ready", flush=True)
if kind == "starting":
    try:
        time.sleep(30)
    finally:
        print("tidied up", flush=True)
if kind == "asking":
    stop.request()
stop.wait(0.2)
print("stopping", flush=True)
if kind == "stuck":
    time.sleep(30)
if kind == "locked":
    ctypes.PyDLL(None).sleep(30)  # with the interpreter's lock in its hands
print("done", flush=True)
"""


def signalled(kind: str, *numbers: int) -> tuple[int, list[str], float]:
    """Exit status, what was printed, and the seconds from the first signal on."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "ready\n"
        time.sleep(0.1)
        begin = time.monotonic()
        lines = []
        for number in numbers:
            process.send_signal(number)
            if len(numbers) > 1 and not lines:
                lines.append(output.readline().strip())
        lines += output.read().split("\n")[:-1]
    return process.wait(20), lines, time.monotonic() - begin


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_for_a_stop(number: int) -> None:
    status, lines, seconds = signalled("waiting", number)
    assert status == 0
    assert lines == ["stopping", "done"]
    assert seconds < 5


def test_the_second_one_ends_the_process() -> None:
    status, lines, _ = signalled("stuck", signal.SIGTERM, signal.SIGINT)
    assert status == 128 + signal.SIGINT
    assert lines == ["stopping"]


@pytest.mark.parametrize("kind", ["stuck", "locked"])
def test_a_stop_that_never_ends_is_ended(kind: str) -> None:
    status, lines, seconds = signalled(kind, signal.SIGTERM)
    assert status == 1
    assert lines == ["stopping"]
    assert seconds < 10


def test_a_signal_while_the_server_starts_ends_it() -> None:
    status, lines, seconds = signalled("starting", signal.SIGTERM)
    assert status == 128 + signal.SIGTERM
    assert lines == ["tidied up"]
    assert seconds < 5


def test_a_stop_can_be_asked_for_by_the_program() -> None:
    status, lines, seconds = signalled("asking")
    assert status == 0
    assert lines == ["stopping", "done"]
    assert seconds < 5
