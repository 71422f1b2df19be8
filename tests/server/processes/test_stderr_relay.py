"""Relay of standard error: TensorFlow's banner is left out, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from infeed_server.processes.stderr_relay import without_banner
print("before", file=sys.stderr)
with without_banner():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written\\n")
    os.write(2, b"I0000 00:00:1795389815.377280   23017 port.cc:153] oneDNN is on\\n")
    os.write(2, b"E0000 00:00:1795389815.377280   23017 gpu.cc:1] a real error\\n")
    os.write(2, b"the last line\\n")
    if sys.argv[1] == "exit":
        raise SystemExit(7)
    if sys.argv[1] == "crash":
        os.abort()
print("I0000 00:00:1 after the import", file=sys.stderr)
"""


@pytest.mark.parametrize("level", ["3", "0"])
@pytest.mark.parametrize(("end", "status"), [("end", 0), ("exit", 7), ("crash", -6)])
def test_banner_is_left_out_and_nothing_else(level: str, end: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, end],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        check=False,
    )
    first, *lines = done.stderr.splitlines()
    assert (done.returncode, first) == (status, "before")
    if level == "0":
        assert [line.partition(" ")[0] for line in lines[:2]] == ["WARNING:", "I0000"]
        lines = lines[2:]
    error = "E0000 00:00:1795389815.377280   23017 gpu.cc:1] a real error"
    after = ["I0000 00:00:1 after the import"] if end == "end" else []
    assert lines == [error, "the last line", *after]
