"""Detection of a worker that TensorFlow leaves stuck, from its standard error.

When the dispatcher does not know a completed task that a worker reports, it rejects the whole
report. TensorFlow's `DataServiceWorkerImpl::TaskCompletionThread` then repeats the report every
five seconds without end, so no completed task of that worker is recorded, and none of its jobs
ends. Only a restart of the worker helps, and only a log line shows the problem:
https://github.com/tensorflow/tensorflow/issues/52252

This file is also a program, through which a worker's standard error passes: a process and not a
thread, so that the last lines of a worker that crashes are not lost. It runs without site-packages,
and imports the standard library alone.

    stuck.py DROPPED MATCHED     copies standard input to standard error but for lines that begin
                                 with DROPPED, and lines with MATCHED to standard output too
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

STUCK_TIMEOUT_SECONDS = 30.0
"""Of rejected reports, after which a worker is stuck. Some restarted dispatchers reject a few."""

_RECOVERY_TIMEOUT_SECONDS = 15.0
"""Without a rejected report for so long, the worker has recovered: TensorFlow logs no success."""

_RELAY_STOP_TIMEOUT_SECONDS = 5.0

_REJECTED = (
    r"Failed to send task updates to dispatcher: "
    r"(?!UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED)(?P<error>.*)"
)
_NOISE = (
    r"I\d{4} \d\d:\d\d|E\d{4} .* cuda_platform\.cc|"
    r"WARNING: All log messages before absl::InitializeLog"
)
"""TensorFlow's output at every start: information, and that it has no accelerator."""

_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_WARNINGS = "1"


class StuckWorkerDetector:
    """Decides from lines of the log whether the worker is stuck. Thread-safe."""

    def __init__(
        self, timeout: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout = STUCK_TIMEOUT_SECONDS if timeout is None else timeout
        self._clock = clock
        self._first = self._last = -_RECOVERY_TIMEOUT_SECONDS
        self.reason: str | None = None
        """Why the worker is stuck; once set, it stays."""

    def process_line(self, line: str) -> None:
        """Processes a line of the log."""
        match = re.search(_REJECTED, line)
        if match is None:
            return
        now = self._clock()
        if now - self._last > _RECOVERY_TIMEOUT_SECONDS:
            self._first = now
        self._last = now
        if now - self._first >= self._timeout and self.reason is None:
            self.reason = (
                f"TensorFlow cannot report completed tasks to the dispatcher, for "
                f"{now - self._first:.0f} s: {match['error'].strip()}"
            )


class StderrMonitor:
    """Passes standard error of this process on, and calls a function with lines that may matter.

    A context manager, to be entered before TensorFlow is imported, which reads its log level then.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        """`on_line` is called on a thread."""
        self._on_line = on_line

    def __enter__(self) -> StderrMonitor:
        all_lines = os.environ.get(_LOG_LEVEL) == "0"
        if not all_lines:
            os.environ[_LOG_LEVEL] = _WARNINGS
        self._stderr = os.dup(2)
        dropped = "(?!)" if all_lines else _NOISE
        # In a session of its own: Ctrl-C at a terminal stops the worker, whose end stops the relay.
        self._relay = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", __file__, dropped, _REJECTED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="infeed-errors", daemon=True)
        self._reader.start()
        assert self._relay.stdin is not None
        os.dup2(self._relay.stdin.fileno(), 2)
        self._relay.stdin.close()
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._stderr, 2)  # closes the relay's input
        os.close(self._stderr)
        try:
            self._relay.wait(_RELAY_STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._relay.kill()
            self._relay.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._relay.stdout is not None
        with self._relay.stdout as lines:
            for line in lines:
                self._on_line(line.decode(errors="replace"))


def tee_stderr(
    source: BinaryIO, target: BinaryIO, matches: BinaryIO, dropped: bytes, matched: bytes
) -> None:
    """Copies lines until the end of `source`, even when `target` or `matches` is closed."""
    drop, match = re.compile(dropped), re.compile(matched)
    for line in iter(source.readline, b""):
        if drop.match(line):
            continue
        with suppress(OSError):
            target.write(line)
            target.flush()
        if match.search(line):
            with suppress(OSError):
                matches.write(line)
                matches.flush()


if __name__ == "__main__":
    patterns = [argument.encode() for argument in sys.argv[1:]]
    tee_stderr(sys.stdin.buffer, sys.stderr.buffer, sys.stdout.buffer, *patterns)
