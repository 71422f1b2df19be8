"""Signals, each in a process of its own."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys

import pytest

from infeed_server.runtime import signals

# Tells when it is ready, then does as it is told.
# Never run in the process of the tests: a stop ends its process, sooner or later.
PROGRAM = """
import ctypes, sys, threading, time
from infeed_server.runtime import signals
kind, signals._END_SECONDS = sys.argv[1], float(sys.argv[2])
class Told(threading.Event):
    def wait(self, seconds):
        if not self.is_set():
            print("ready", flush=True)
        return super().wait(seconds)
stop = signals.Stop()
stop._event = Told()
stop.install()
if kind == "starting":
    try:
        print("ready", flush=True)
        time.sleep(300)
    finally:
        print("tidied up", flush=True)
if kind == "asking":
    print("ready", flush=True)
    stop.request()
stop.wait(0.0)
print("stopping", flush=True)
if kind == "stuck":
    time.sleep(300)
if kind == "locked":
    ctypes.PyDLL(None).sleep(300)  # with the interpreter's lock in its hands
print("done", flush=True)
"""


def signalled(kind: str, *numbers: int, end_seconds: float = 600.0) -> tuple[int, list[str]]:
    """Exit status, and what was printed; what the program has to end by itself is given."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind, str(end_seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline() == "ready\n"
        lines = []
        for number in numbers:
            process.send_signal(number)
            if len(numbers) > 1 and not lines:
                lines.append(output.readline().strip())
        lines += output.read().split("\n")[:-1]
    return process.wait(60), lines


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_for_a_stop(number: int) -> None:
    assert signalled("waiting", number) == (0, ["stopping", "done"])


def test_the_second_one_ends_the_process() -> None:
    status, lines = signalled("stuck", signal.SIGTERM, signal.SIGINT)
    assert status == 128 + signal.SIGINT
    assert lines == ["stopping"]


@pytest.mark.parametrize("kind", ["stuck", "locked"])
def test_a_stop_that_never_ends_is_ended(kind: str) -> None:
    assert signalled(kind, signal.SIGTERM, end_seconds=0.3) == (1, ["stopping"])


def test_a_signal_while_the_server_starts_ends_it() -> None:
    assert signalled("starting", signal.SIGTERM) == (128 + signal.SIGTERM, ["tidied up"])


def test_a_stop_can_be_asked_for_by_the_program() -> None:
    assert signalled("asking") == (0, ["stopping", "done"])


def test_a_stop_has_its_grace_before_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up: list[tuple[float, bool]] = []

    def later(seconds: float, *, exit: bool, file: int) -> None:  # noqa: A002 - faulthandler's name
        os.close(file)
        set_up.append((seconds, exit))

    monkeypatch.setattr(faulthandler, "dump_traceback_later", later)
    stop = signals.Stop()
    stop.request()
    stop.wait(70)
    assert set_up == [(70 + signals._END_SECONDS, True)]
