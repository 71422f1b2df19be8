"""Tests of the relay of standard error."""

from __future__ import annotations

import io
import os
import subprocess
import sys

from infeed_server.data_service.worker.stderr_relay import tee_stderr

CRASHES = """
import os
from infeed_server.data_service.worker.stderr_relay import StderrRelay
with StderrRelay():
    os.write(2, b"last line\\n")
    os.abort()
"""


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
