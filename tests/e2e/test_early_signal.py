"""A server that is told to end as soon as it says that it serves ends in good order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

# The signal comes while the line is being printed, before the server waits for one.
SERVE = """
import os, signal
import infeed_server.cli as cli

def announce(address, http):
    print("serving", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

cli.announce = announce
cli.serve("pipelines.yaml", listen="127.0.0.1:0", http="off")
"""


def test_a_signal_with_the_line_on_standard_output(tmp_path: Path) -> None:
    np.save(tmp_path / "n.npy", np.arange(100))
    (tmp_path / "pipelines.yaml").write_text(
        "pipelines: {n: {source: {arrays: n.npy}, batch: {size: 4}}}"
    )
    done = subprocess.run(
        [sys.executable, "-c", SERVE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout == "serving\n"
    assert done.returncode == 0, done.stderr
    assert "stopping" in done.stderr
