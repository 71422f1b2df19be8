"""Main program of the nursery: imports what `infeed serve` needs, then forks on request.

A request is a line of JSON on stdin. A second fork beside each process writes its exit status.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

_MODULES = (
    "infeed.cli",
    "infeed_server.cli",
    "infeed_server.cli.console",
    "infeed_server.runtime.server",  # with TensorFlow
    "infeed_server.processes.signals",
)

SERVE_EXIT_TIMEOUT_SECONDS = 60.0
"""Replaces the product's five seconds, after which a server exits with status 1: on a busy machine
its shutdown takes longer. test_signals tests the timeout."""

PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def end_with_parent() -> None:
    """Makes the kernel kill this process when its parent ends: a killed test run leaves none."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_command(request: dict[str, Any]) -> None:
    """Runs the requested command in this process."""
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        log = os.open(f"{request['log']}.{name}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(log, number)
    sys.stdin.close()
    sys.path[0] = ""
    match request["arguments"]:
        case ["python", "-m", module, *arguments]:
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["python", *arguments]:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
        case arguments:
            if arguments[0] == "serve":
                signals: Any = importlib.import_module("infeed_server.processes.signals")
                signals._EXIT_TIMEOUT_SECONDS = SERVE_EXIT_TIMEOUT_SECONDS
            sys.argv = ["infeed", *arguments]
            importlib.import_module("infeed.cli").main()


def write(path: str, text: str) -> None:
    """Writes a file in one step: a reader sees all of it or none."""
    part = Path(path + ".part")
    part.write_text(text)
    part.rename(path)


os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
# Else each process would collect garbage among all imported objects at its end.
with importlib.import_module("infeed_server.imports").without_gc():
    for name in _MODULES:
        importlib.import_module(name)
print("ready", flush=True)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in iter(sys.stdin.readline, ""):
    request = json.loads(line)
    if os.fork():
        continue
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        end_with_parent()
        run_command(request)
        sys.exit(0)
    write(request["log"] + ".pid", str(child))
    _, status = os.waitpid(child, 0)
    write(request["log"] + ".status", str(os.waitstatus_to_exitcode(status)))
    os._exit(0)
shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
os._exit(0)  # TensorFlow's shutdown would take seconds
