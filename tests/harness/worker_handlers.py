"""Handlers of requests that worker processes of tests load by name."""

from __future__ import annotations

import os
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from infeed import SourceError


def echo(argument: Any) -> Callable[[Any], Any]:
    """Returns each request with the argument, the process id and the modules."""
    return lambda request: (argument, request, os.getpid(), "tensorflow" in sys.modules)


def obey(folder: str) -> Callable[[Any], Any]:
    """Does what a request says, and appends the process id to a file first."""

    def handle(request: Any) -> Any:
        with Path(folder, "requests").open("a") as file:
            file.write(f"{os.getpid()}\n")
        match request:
            case ("exit", status):
                os._exit(status)
            case ("kill", number):
                os.kill(os.getpid(), number)
            case ("exit once", status) if not Path(folder, "once").exists():
                Path(folder, "once").touch()
                os._exit(status)
            case "hang":
                _hang()
            case "fork and hang":
                _fork_a_pause(folder)
                _hang()
            case "fork" if (child := os.fork()) != 0:
                os.waitpid(child, 0)  # which returns from here too
            case "fork and end once" if not Path(folder, "once").exists():
                Path(folder, "once").touch()
                _fork_a_pause(folder)
                os._exit(3)
            case ("print", text):
                print(text, flush=True)
            case "fail":
                raise SourceError("the disk is away", file="a.bin")
            case "error":
                raise KeyError("a mistake of infeed")
        return os.getpid()

    return handle


def leave_open(folder: str) -> Callable[[Any], Any]:
    """Leaves files open, as a module of the user's code does in its names."""
    module = types.ModuleType("left_open")
    sys.modules[module.__name__] = module
    exec(Path(folder, "left_open.py").read_text(), vars(module))
    return lambda request: request


def _hang() -> NoReturn:
    while True:
        signal.pause()


def _fork_a_pause(folder: str) -> None:
    if (child := os.fork()) == 0:
        _hang()
    Path(folder, "child").write_text(str(child))
