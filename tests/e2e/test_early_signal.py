"""Graceful shutdown on a SIGTERM that arrives while the server announces its address, the only
output of a server whose data set prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# The signal arrives before the server waits for signals.
SERVE = """
import os, signal, sys
import infeed_server.cli.serve as cli
from infeed.cli import main

def announce(address, http, out):
    print("serving", file=out, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

cli.announce = announce
sys.argv = "infeed serve pipelines.yaml --listen 127.0.0.1:0 --http off".split()
main()
"""

ROWS = """
print("imported")


class Rows:
    fingerprint = "rows"

    def __len__(self):
        return 100

    def __getitem__(self, index):
        print("read")
        return index
"""


def test_sigterm_during_the_announcement_stops_the_server(
    command_line: Any, tmp_path: Path
) -> None:
    (tmp_path / "noisy_rows.py").write_text(ROWS)
    (tmp_path / "pipelines.yaml").write_text(
        "pipelines: {n: {source: {python: noisy_rows:Rows}, batch: {size: 4}}}"
    )
    (tmp_path / "serve.py").write_text(SERVE)
    server = command_line.run("python", "serve.py", cwd=tmp_path)
    assert server.status == 0, server.stderr
    assert server.stdout == "serving\n"
    assert {"imported", "read"} < set(server.stderr.splitlines())
    assert "stopping" in server.stderr
