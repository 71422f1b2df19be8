"""Main program of the template: imports what `infeed serve` needs, then forks on request.

A request comes as a line of JSON on a connection to the Unix socket that is stdin. It is from an
interpreter (`forked_python.py`), with its standard files, or from a nursery, which forks a
process for each further line; a second fork beside the process writes its exit status.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

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


def serve(connection: socket.socket, python: str) -> NoReturn:
    """Serves the requests of a connection; `python` is the interpreter for child processes."""
    end_with_parent()
    line, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not line.endswith(b"\n"):
        line += connection.recv(1 << 20)
    if files:
        run_interpreter(connection, files, **json.loads(line))
    run_nursery(connection, python)


def run_nursery(connection: socket.socket, python: str) -> NoReturn:
    """Forks a process for each request, until the test process closes the connection or ends."""
    # A folder for temporary files, removed at the end: killed processes leave some. The template's
    # folder has it, whose end removes what an interrupted run leaves.
    folder = Path(python).parent
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="infeed-", dir=folder)
    connection.sendall(b"ready\n")
    requests = connection.makefile()
    for line in requests:
        if not os.fork():
            requests.close()
            connection.close()
            run_request(json.loads(line), python)
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
    os._exit(0)  # TensorFlow's shutdown would take seconds


def run_request(request: dict[str, Any], python: str) -> NoReturn:
    """Forks the requested process, and writes its id and its exit status."""
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        end_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(request["cwd"])
        os.environ.update(request["env"])
        for number, name in ((1, "stdout"), (2, "stderr")):
            log = os.open(f"{request['log']}.{name}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.dup2(log, number)
        sys.stdin.close()
        run_command(request["arguments"], python)
        sys.exit(0)
    write(request["log"] + ".pid", str(child))
    _, status = os.waitpid(child, 0)
    write(request["log"] + ".status", str(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def run_command(arguments: list[str], python: str) -> None:
    """Runs `infeed ARGUMENTS`, or `python ...`, in this process."""
    sys.executable = python
    match arguments:
        case ["python", *rest]:
            run_python(rest)
        case _:
            if arguments[0] == "serve":
                signals: Any = importlib.import_module("infeed_server.processes.signals")
                signals._EXIT_TIMEOUT_SECONDS = SERVE_EXIT_TIMEOUT_SECONDS
            sys.argv = ["infeed", *arguments]
            importlib.import_module("infeed.cli").main()


def run_python(arguments: list[str]) -> None:
    """Runs `python ARGUMENTS` in this process."""
    sys.path[0] = ""
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-u", "-c", program]:
            sys.argv = ["-c"]
            exec(program, {"__name__": "__main__"})
        case [file, *_]:
            sys.argv = arguments
            runpy.run_path(file, run_name="__main__")


def run_interpreter(
    connection: socket.socket, files: list[int], arguments: list[str], cwd: str, env: dict[str, str]
) -> NoReturn:
    """Forks an interpreter, forwards signals to it, and sends its exit status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        end_with_parent()
        connection.close()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        run_python(arguments)
        sys.exit(0)
    for file in files:
        os.close(file)
    pidfd = os.pidfd_open(child)
    while pidfd not in select.select([connection, pidfd], [], [])[0]:
        number = connection.recv(1)
        os.kill(child, number[0] if number else signal.SIGKILL)
        if not number:
            break
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def write(path: str, text: str) -> None:
    """Writes a file in one step: a reader sees all of it or none."""
    part = Path(path + ".part")
    part.write_text(text)
    part.rename(path)


def import_modules() -> None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    # Else each process would collect garbage among all imported objects at its end.
    with importlib.import_module("infeed_server.imports").without_gc():
        for name in _MODULES:
            importlib.import_module(name)


end_with_parent()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
# Ctrl-C reaches this process too; it ends with the run, which first ends its tests.
signal.signal(signal.SIGINT, signal.SIG_IGN)
listener = socket.socket(fileno=os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
while True:
    accepted, _ = listener.accept()
    import_modules()  # not before: most selections of tests start no process
    if not os.fork():
        listener.close()
        serve(accepted, sys.argv[1])
    accepted.close()
