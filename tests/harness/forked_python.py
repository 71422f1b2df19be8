"""Python interpreter that is forked from the template, so that it need not load TensorFlow.

A copy of this file, beside the template's socket, is `sys.executable` of processes under test. It
passes its arguments and standard files to the template, forwards signals to the forked process, and
ends as that process does. It is `python` itself for anything but `-m infeed` and xdist's workers.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

FORKED = (["-m", "infeed"], ["-u", "-c"])
"""The first arguments of processes that load TensorFlow."""


def run_forked(connection: socket.socket) -> int:
    """Runs the process, and returns its exit status, -n after signal n."""

    def forward(number: int, _: FrameType | None) -> None:
        connection.send(bytes([number]))

    request = {"arguments": sys.argv[1:], "cwd": str(Path.cwd()), "env": dict(os.environ)}
    files = [0, 1, 2]
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], files)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    for file in files:
        os.close(file)  # or their other ends would not notice that the process closes them
    return int(connection.makefile().read() or -signal.SIGKILL)


if sys.argv[1:3] not in FORKED:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(str(Path(__file__).with_name("socket")))
    status = run_forked(connection)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
