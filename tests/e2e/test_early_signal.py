"""Graceful shutdown on a SIGTERM that arrives while the server announces its address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

# The signal arrives before the server waits for signals.
SERVE = """
import os, signal
import infeed_server.cli.commands as cli

def announce(address, http):
    print("serving", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

cli.announce = announce
cli.serve("pipelines.yaml", listen="127.0.0.1:0", http="off")
"""


def test_sigterm_during_the_announcement_stops_the_server(
    command_line: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "n.npy", np.arange(100))
    (tmp_path / "pipelines.yaml").write_text(
        "pipelines: {n: {source: {arrays: n.npy}, batch: {size: 4}}}"
    )
    (tmp_path / "serve.py").write_text(SERVE)
    server = command_line.run("python", "serve.py", cwd=tmp_path)
    assert server.status == 0, server.stderr
    assert server.stdout == "serving\n"
    assert "stopping" in server.stderr
