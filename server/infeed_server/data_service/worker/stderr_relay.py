"""Relay of standard error: another process passes its lines on, without TensorFlow's banner.

This file is also the relay's program: a process and not a thread, so that the last lines of a
process that crashes are not lost, and because libraries are loaded under Python's lock. It runs
without site-packages, and imports the standard library alone.

    stderr_relay.py DROPPED MATCHED     copies standard input to standard error but for lines that
                                        begin with DROPPED, and lines with MATCHED to standard
                                        output too
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""TensorFlow's environment variable. With "0", no line is left out."""

_NOISE = (
    r"I\d{4} \d\d:\d\d|E\d{4} .* cuda_platform\.cc|"
    r"WARNING: All log messages before absl::InitializeLog"
)
"""TensorFlow's output at every start: information, and that it has no accelerator."""

_NOTHING = "(?!)"
"""A pattern that no line matches."""

_STOP_TIMEOUT_SECONDS = 5.0


class StderrRelay:
    """Relays standard error of this process. A context manager."""

    def __init__(
        self, matched: str = _NOTHING, on_line: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_line` is called with each line that has `matched`, on a thread."""
        self._matched = matched
        self._on_line = on_line

    def __enter__(self) -> StderrRelay:
        self._stderr = os.dup(2)
        dropped = _NOTHING if os.environ.get(LOG_LEVEL) == "0" else _NOISE
        # In a session of its own: Ctrl-C at a terminal stops this process, whose end stops the
        # relay.
        self._relay = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", __file__, dropped, self._matched],
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
            self._relay.wait(_STOP_TIMEOUT_SECONDS)
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
