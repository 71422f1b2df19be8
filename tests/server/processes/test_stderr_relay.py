"""Tests of the relay of standard error."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from infeed_server.processes.stderr_relay import tee_stderr

CRASHES = """
import os
from infeed_server.processes.stderr_relay import StderrRelay
with StderrRelay():
    os.write(2, b"last line\\n")
    os.abort()
"""


BANNER = """
import os, sys
from infeed_server.processes.stderr_relay import without_banner
print("before", file=sys.stderr)
with without_banner():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written\\n")
    os.write(2, b"I0000 00:00:1795389815.377280   23017 port.cc:153] oneDNN is on\\n")
    os.write(2, b"E0000 00:00:1795389815.377280   23017 gpu.cc:1] a real error\\n")
    os.write(2, b"Traceback, without an end of line")
    if sys.argv[1] == "exit":
        raise SystemExit(7)
print("I0000 00:00:1 after the import", file=sys.stderr)
"""


@pytest.mark.parametrize("level", ["3", "0"])
@pytest.mark.parametrize("end", ["end", "exit"])
def test_banner_is_left_out_and_nothing_else(level: str, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BANNER, end],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stderr.splitlines()
    banner = lines[1:-2] if level == "0" else []
    assert [line.partition(" ")[0] for line in banner] == (
        ["WARNING:", "I0000"] if level == "0" else []
    )
    error = "E0000 00:00:1795389815.377280   23017 gpu.cc:1] a real error"
    last = "Traceback, without an end of line"
    if end == "exit":
        assert done.returncode == 7
    else:
        assert done.returncode == 0
        last += "I0000 00:00:1 after the import"
    assert lines == ["before", *banner, error, last]


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
