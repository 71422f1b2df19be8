"""Program of the nursery: it imports what `infeed serve` needs, then forks a process per order.

An order is a line of JSON on its input. A watcher beside each process keeps its exit status.
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
    "infeed_server.progress",
    "infeed_server.runtime.server",  # with TensorFlow
    "infeed_server.runtime.signals",
)

SERVE_END_SECONDS = 60.0
"""A server that ends late beside ten busy processes does not hang: the product's five seconds
would end it with status 1. test_signals has that guard with its own seconds."""

PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


def end_with_parent() -> None:
    """Has the kernel end this process when the one that forked it ends, however that ends: with a
    test run that is killed, all of its processes go."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_command(order: dict[str, Any]) -> None:
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(order["log"] + "." + name, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    sys.stdin.close()
    sys.path[0] = ""
    match order["words"]:
        case ["python", "-m", module, *words]:
            sys.argv = [module, *words]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["python", *words]:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
        case words:
            if words[0] == "serve":
                signals: Any = importlib.import_module("infeed_server.runtime.signals")
                signals._END_SECONDS = SERVE_END_SECONDS
            sys.argv = ["infeed", *words]
            importlib.import_module("infeed.cli").main()


def write(path: str, text: str) -> None:
    """Writes a file that is there whole or not at all."""
    part = Path(path + ".part")
    part.write_text(text)
    part.rename(path)


os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
# What was imported is never garbage: else each process would look through all of it at its end.
with importlib.import_module("infeed_server.imports").without_collection():
    for name in _MODULES:
        importlib.import_module(name)
print("ready", flush=True)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in iter(sys.stdin.readline, ""):
    order = json.loads(line)
    if os.fork():
        continue
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        end_with_parent()
        run_command(order)
        sys.exit(0)
    write(order["log"] + ".pid", str(child))
    _, status = os.waitpid(child, 0)
    write(order["log"] + ".status", str(os.waitstatus_to_exitcode(status)))
    os._exit(0)
shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
os._exit(0)  # TensorFlow's own end would take seconds
