"""The main program of a worker process: answers requests until its parent ends.

The parent sends the name of a function, `module:attr`, and its argument. The function returns the
handler of requests. What it imports is all that the worker imports.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infeed.shared.errors import InfeedError, shorten
from infeed_server.processes.worker_process import Channel

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>


@dataclass(frozen=True)
class Failure:
    """The error that the handler raised, in parts that every process can read."""

    reason: str
    message: str
    metadata: dict[str, str]


def main(descriptor: int, parent: int) -> None:
    """Serves the requests on a socket, by its file descriptor."""
    # Ctrl-C at a terminal is for the parent, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent(parent)
    os.set_inheritable(descriptor, False)
    channel = Channel(socket.socket(fileno=descriptor))
    # A process that the user's code forks would answer too, or hold the channel open after the end
    # of this one, for which the parent waits.
    os.register_at_fork(after_in_child=channel.close)
    try:
        name, argument = channel.receive()
        module, _, attribute = name.partition(":")
        handle = getattr(importlib.import_module(module), attribute)(argument)
        while True:
            channel.send(_answer(handle, channel.receive()))
    except (EOFError, OSError):
        return  # the parent has closed its end


def _answer(handle: Callable[[Any], Any], request: Any) -> Any:
    """Returns what the handler returns, or a `Failure`."""
    try:
        return handle(request)
    except InfeedError as error:
        return Failure(error.reason, error.message, dict(error.metadata))
    except Exception:  # noqa: BLE001 - of infeed itself; the parent logs it
        return Failure(InfeedError.reason, shorten(traceback.format_exc().rstrip()), {})


def _end_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when the thread that started it ends, however it ends.

    Elsewhere than on Linux, the worker ends at its next read from the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended before
        os._exit(1)
