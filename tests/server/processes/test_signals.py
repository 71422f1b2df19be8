"""Tests of `processes/signals.py`; each signal is sent to another process."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from infeed_server.processes import signals

# Prints "ready", then does what `kind` selects. Runs in another process, which a shutdown ends.
PROGRAM = """
import ctypes, sys, threading, time
from infeed_server.processes import signals
kind, signals._EXIT_TIMEOUT_SECONDS = sys.argv[1], float(sys.argv[2])
class ReadyEvent(threading.Event):
    said = False
    def wait(self, seconds):
        if not (self.said or self.is_set()):
            self.said = True
            print("ready", flush=True)
        return super().wait(seconds)
stop = signals.ShutdownSignal()
stop._event = ReadyEvent()
stop.install()
if kind == "starting":
    try:
        print("ready", flush=True)
        while True:
            time.sleep(0.05)  # a signal just before one long sleep would not interrupt it
    finally:
        print("cleaned up", flush=True)
stop.wait(0.0)
print("stopping", flush=True)
while kind == "stuck":
    time.sleep(0.05)
if kind == "locked":
    ctypes.PyDLL(None).sleep(300)  # holds the interpreter's lock
print("done", flush=True)
"""


def run(kind: str, *numbers: int, exit_timeout: float = 600.0) -> tuple[int, list[str]]:
    """Runs the program, sends it the signals, and returns its exit status and its output."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, kind, str(exit_timeout)], stdout=subprocess.PIPE, text=True
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
def test_first_signal_requests_shutdown(number: int) -> None:
    assert run("waiting", number) == (0, ["stopping", "done"])


def test_second_signal_ends_process_at_once() -> None:
    status, lines = run("stuck", signal.SIGTERM, signal.SIGINT)
    assert status == 128 + signal.SIGINT
    assert lines == ["stopping"]


@pytest.mark.parametrize("kind", ["stuck", "locked"])
def test_shutdown_that_hangs_is_ended(kind: str) -> None:
    assert run(kind, signal.SIGTERM, exit_timeout=0.3) == (1, ["stopping"])


def test_forced_exit_waits_for_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[tuple[float, bool]] = []

    def dump_traceback_later(seconds: float, **options: Any) -> None:
        os.close(options["file"])
        timers.append((seconds, options["exit"]))

    monkeypatch.setattr(faulthandler, "dump_traceback_later", dump_traceback_later)
    stop = signals.ShutdownSignal()
    stop.set()
    stop.wait(70)
    assert timers == [(70 + signals._EXIT_TIMEOUT_SECONDS, True)]


def test_signal_during_start_exits() -> None:
    assert run("starting", signal.SIGTERM) == (128 + signal.SIGTERM, ["cleaned up"])


INTERRUPTED = """
import ctypes, signal
from infeed_server.processes import signals
signals._INTERRUPT_TIMEOUT_SECONDS = 0.01
signal.signal(signal.SIGINT, lambda *_: None)  # it may come just before the second lock
with signals.exit_after_interrupt(lambda: None):
    pass
with signals.exit_after_interrupt(lambda: print("before the exit", flush=True)):
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    print("ready", flush=True)
    lock(mutex)  # which no signal interrupts
"""


def test_interrupt_ends_a_process_whose_main_thread_is_stuck() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 130
            assert process.stdout.read() == "before the exit\n"
        finally:
            process.kill()
