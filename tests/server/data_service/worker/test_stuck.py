"""Tests of the detection of a stuck worker from TensorFlow's log."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from infeed_server.data_service.worker.stuck import StuckWorkerDetector, tee_stderr

PREFIX = "W0000 00:00:1795301389.141248   14956 worker_impl.cc:532] "
REJECTED = (
    f"{PREFIX}Failed to send task updates to dispatcher: NOT_FOUND: Failed to send worker update: "
    "Task 4000 not found\n"
)
UNAVAILABLE = (
    f"{PREFIX}Failed to send task updates to dispatcher: UNAVAILABLE: Failed to send worker "
    "update: failed to connect to all addresses\n"
)


class Log:
    """A log whose lines a detector processes."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.detector = StuckWorkerDetector(30, lambda: self.now)

    def write(self, line: str, seconds: float) -> str | None:
        """Writes a line, `seconds` after the previous one; returns the reason."""
        self.now += seconds
        self.detector.process_line(line)
        return self.detector.reason


def test_repeated_rejection_is_stuck() -> None:
    log = Log()
    assert [log.write(REJECTED, 5) for _ in range(6)] == [None] * 6
    reason = log.write(REJECTED, 5)
    assert reason == (
        "TensorFlow cannot report completed tasks to the dispatcher, for 30 s: NOT_FOUND: Failed "
        "to send worker update: Task 4000 not found"
    )
    log.write("something else", 100)
    assert log.detector.reason == reason
    assert [log.write(REJECTED, 5) for _ in range(10)] == [reason] * 10, "the first reason stays"


def test_unavailable_dispatcher_is_not_a_rejection() -> None:
    log = Log()
    assert {log.write(UNAVAILABLE, 5) for _ in range(50)} == {None}


def test_occasional_rejection_is_not_stuck() -> None:
    log = Log()
    assert {log.write(REJECTED, 20) for _ in range(50)} == {None}


WRITES = """
import logging, os, sys
from infeed_server.data_service.worker.stuck import StderrMonitor
lines = []
with StderrMonitor(lines.append):
    level = os.environ["TF_CPP_MIN_LOG_LEVEL"]
    os.write(2, b"I0000 00:00:1 1 port.cc:153] information\\n")
    os.write(2, sys.argv[1].encode())
    print("python", file=sys.stderr)
    os.write(2, b"no end of line")
print("after", file=sys.stderr)
print(level, lines)
"""
CRASHES = """
import os
from infeed_server.data_service.worker.stuck import StderrMonitor
with StderrMonitor(print):
    os.write(2, b"last line\\n")
    os.abort()
"""


@pytest.mark.parametrize(
    ("configured", "level", "shown"),
    [("3", "1", ""), ("0", "0", "I0000 00:00:1 1 port.cc:153] inform")],
)
def test_stderr_is_passed_on_and_monitored(configured: str, level: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITES, REJECTED],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": configured},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.endswith(f"{REJECTED}python\nno end of lineafter\n")
    assert done.stderr.startswith(shown or REJECTED)
    assert done.stdout == f"{level} {[REJECTED]!r}\n"


def test_last_line_before_a_crash_is_passed_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHES], env=os.environ, capture_output=True, check=False
    )
    assert done.returncode == -6
    assert done.stderr == b"last line\n"


def test_tee_continues_after_an_output_is_closed() -> None:
    class Closed(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError

    matches, target = io.BytesIO(), io.BytesIO()
    tee_stderr(io.BytesIO(b"one\ntwo\n"), Closed(), matches, b"(?!)", b"two")
    assert matches.getvalue() == b"two\n"
    tee_stderr(io.BytesIO(b"one\ntwo\n"), target, Closed(), b"(?!)", b"one")
    assert target.getvalue() == b"one\ntwo\n"


def test_tee_flushes_each_line() -> None:
    class Buffered(io.BytesIO):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    flushed: list[bytes] = []
    tee_stderr(io.BytesIO(b"one\ntwo\n"), Buffered(), io.BytesIO(), b"(?!)", b"(?!)")
    assert flushed[:2] == [b"one\n", b"one\ntwo\n"]
    flushed.clear()
    tee_stderr(io.BytesIO(b"one\ntwo\n"), io.BytesIO(), Buffered(), b"(?!)", b"two")
    assert flushed[:1] == [b"two\n"]
