"""A worker that TensorFlow has left stuck: noticed by what it writes on standard error.

A worker tells the dispatcher of tasks that have ended. When the dispatcher does not know one of
them, it refuses, and the worker tells the same every five seconds for ever: nothing that ends on
it is told any more, so no job on it comes to its end. Only a log line shows it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from infeed_server.cluster import relay

WEDGED_SECONDS = 30.0
"""TensorFlow says so every five seconds; some dispatchers that are started anew need a few."""

_GAP_SECONDS = 15.0
"""After so long without the line it went well: TensorFlow does not say that it did."""

_REFUSED = (
    r"Failed to send task updates to dispatcher: "
    r"(?!UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED)(?P<why>.*)"
)
_NOISE = (
    r"I\d{4} \d\d:\d\d|E\d{4} .* cuda_platform\.cc|"
    r"WARNING: All log messages before absl::InitializeLog"
)
"""What TensorFlow says at every start: information, and that it may use no accelerator."""

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_WARNINGS = 1

_END_SECONDS = 5.0


class Wedge:
    """Decides from lines of the log whether the worker is stuck. Thread-safe."""

    def __init__(
        self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = WEDGED_SECONDS if seconds is None else seconds
        self._clock = clock
        self._since = self._last = -_GAP_SECONDS
        self.reason: str | None = None
        """Why it is stuck; None while it is not. It stays."""

    def hear(self, line: str) -> None:
        """A line of the log."""
        found = re.search(_REFUSED, line)
        if found is None:
            return
        now = self._clock()
        if now - self._last > _GAP_SECONDS:
            self._since = now
        self._last = now
        if now - self._since >= self._seconds and self.reason is None:
            self.reason = (
                f"TensorFlow cannot tell the dispatcher which tasks have ended, for "
                f"{now - self._since:.0f} s: {found['why'].strip()}"
            )


class HeardErrors:
    """Standard error of this process, passed on and listened to. A context manager.

    Has to be entered before TensorFlow is imported, which reads then what it is to say.
    """

    def __init__(self, heard: Callable[[str], None]) -> None:
        """`heard` is called with each line that may matter, in a thread."""
        self._heard = heard

    def __enter__(self) -> HeardErrors:
        wanted = os.environ.get(_LEVEL, "")
        everything = wanted == "0"
        if not everything:
            os.environ[_LEVEL] = str(_WARNINGS)
        self._stderr = os.dup(2)
        dropped = "(?!)" if everything else _NOISE
        # Of a session of its own: Ctrl-C at a terminal is for the worker, whose end is its end.
        self._relay = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", relay.__file__, dropped, _REFUSED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, name="infeed-errors", daemon=True)
        self._listener.start()
        assert self._relay.stdin is not None
        os.dup2(self._relay.stdin.fileno(), 2)
        self._relay.stdin.close()
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._stderr, 2)  # the relay's input ends with this
        os.close(self._stderr)
        try:
            self._relay.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._relay.kill()
            self._relay.wait()
        self._listener.join()

    def _listen(self) -> None:
        assert self._relay.stdout is not None
        with self._relay.stdout as lines:
            for line in lines:
                self._heard(line.decode(errors="replace"))
