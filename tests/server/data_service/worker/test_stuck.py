"""Tests of the detection of a stuck worker from TensorFlow's log."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from infeed_server.data_service.worker.stuck import StuckWorkerDetector

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
