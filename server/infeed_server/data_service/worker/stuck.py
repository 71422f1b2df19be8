"""Detection of a worker that TensorFlow leaves stuck, from its standard error.

When the dispatcher does not know a completed task that a worker reports, it rejects the whole
report. TensorFlow's `DataServiceWorkerImpl::TaskCompletionThread` then repeats the report every
five seconds without end, so no completed task of that worker is recorded, and none of its jobs
ends. Only a restart of the worker helps, and only a log line shows the problem:
https://github.com/tensorflow/tensorflow/issues/52252
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

from typing_extensions import override

from infeed_server.data_service.worker.stderr_relay import LOG_LEVEL, StderrRelay

STUCK_TIMEOUT_SECONDS = 30.0
"""Of rejected reports, after which a worker is stuck. Some restarted dispatchers reject a few."""

_RECOVERY_TIMEOUT_SECONDS = 15.0
"""Without a rejected report for so long, the worker has recovered: TensorFlow logs no success."""

_REJECTED = (
    r"Failed to send task updates to dispatcher: "
    r"(?!UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED)(?P<error>.*)"
)
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


class StderrMonitor(StderrRelay):
    """Relays standard error, and calls a function with lines that may matter.

    To be entered before TensorFlow is imported, which reads its log level then.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        """`on_line` is called on a thread."""
        super().__init__(_REJECTED, on_line)

    @override
    def __enter__(self) -> StderrMonitor:
        if os.environ.get(LOG_LEVEL) != "0":
            os.environ[LOG_LEVEL] = _WARNINGS
        super().__enter__()
        return self
