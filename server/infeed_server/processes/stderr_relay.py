"""Relay of standard error during the import of TensorFlow, without TensorFlow's banner.

TensorFlow writes a banner at every import, before it reads its log level.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
"""TensorFlow's environment variable. With "0", no line is left out."""

_FILTER = r"""
import re, sys
banner = rb"I\d{4} \d\d:\d\d|E\d{4} .* cuda_platform\.cc|WARNING: All log messages before absl::"
sys.stdout.buffer.writelines(line for line in sys.stdin.buffer if not re.match(banner, line))
"""
"""Leaves out TensorFlow's output at every start: information, and that it has no accelerator."""

_STOP_TIMEOUT_SECONDS = 5.0
"""Seconds: with fewer, the last lines of a busy machine are lost; with more, a process that the
block has started, and that keeps standard error open, delays the end."""


@contextmanager
def without_banner() -> Iterator[None]:
    """Leaves the banner out of standard error while the block imports TensorFlow."""
    if "tensorflow.python" in sys.modules or os.environ.get(LOG_LEVEL) == "0":
        yield
        return
    stderr = os.dup(2)
    # A process and no thread, so that the last lines of a crash are not lost. In its own session:
    # Ctrl-C at a terminal stops this process, whose end stops the relay.
    relay = subprocess.Popen(  # noqa: S603
        [sys.executable, "-uISc", _FILTER],
        stdin=subprocess.PIPE,
        stdout=stderr,
        start_new_session=True,
    )
    assert relay.stdin is not None
    os.dup2(relay.stdin.fileno(), 2)
    relay.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)  # closes the relay's input
        os.close(stderr)
        with suppress(subprocess.TimeoutExpired):
            relay.wait(_STOP_TIMEOUT_SECONDS)
