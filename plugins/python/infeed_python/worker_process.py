"""One worker process: its start, the messages to and from it, and its main program.

The parent sends the name of a function, `module:attr`, and its argument. The function returns the
handler of requests. The worker imports only what that function imports.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from infeed.shared.errors import InfeedError, ServerError

_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from infeed_python.worker_process import main; main({descriptor}, {parent})"
)
"""Not started by multiprocessing, which would import the main module of this process."""

_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
"""Without these, libraries would start a thread per processor in each worker."""

_STANDARD_ERROR = 2

_PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>

_REAP_TIMEOUT_SECONDS = 1.0
"""Time for a worker to end after its socket is closed, before it is killed."""

_COUNT = struct.Struct("=I")


class Channel:
    """One end of a socket pair that carries Python objects, used by one thread at a time. Messages
    are pickled; the memory of their arrays follows the pickle without a copy."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def close(self) -> None:
        self._socket.close()

    def send(self, message: Any) -> None:
        """Raises `OSError` when the other end is closed."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
        sizes = struct.pack(f"={len(parts)}Q", *(part.nbytes for part in parts))
        self._socket.sendall(_COUNT.pack(len(parts)) + sizes)
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> Any:
        """Returns the next message. Raises `EOFError` or `OSError` when the other end is closed."""
        (count,) = _COUNT.unpack(self._receive_bytes(_COUNT.size))
        sizes = struct.unpack(f"={count}Q", self._receive_bytes(8 * count))
        pickled, *buffers = map(self._receive_bytes, sizes)
        return pickle.loads(pickled, buffers=buffers)  # noqa: S301 - written by infeed

    def _receive_bytes(self, size: int) -> memoryview:
        # Unlike a bytearray, it is not filled with zeros first.
        view: memoryview = np.empty(size, np.uint8).data
        received = 0
        while received < size:
            count = self._socket.recv_into(view[received:], 0, socket.MSG_WAITALL)
            if not count:
                raise EOFError("the other end of the channel is closed")
            received += count
        return view


class WorkerProcess:
    """A started worker. The thread that starts it must outlive it; other threads may `kill` it."""

    def __init__(self, first_message: Any) -> None:
        """Starts the process and sends it the first message."""
        ours, theirs = socket.socketpair()
        path, descriptor = [str(folder) for folder in sys.path], theirs.fileno()
        program = _PROGRAM.format(path=path, descriptor=descriptor, parent=os.getpid())
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                # Standard output belongs to the command: the ready line, or JSON.
                stdout=_STANDARD_ERROR,
                pass_fds=[descriptor],
                env={**_ONE_THREAD, **os.environ},
                start_new_session=True,  # Ctrl-C at a terminal does not reach it
            )
        self.pid = self._process.pid
        self._channel = Channel(ours)
        with contextlib.suppress(OSError):  # it has ended; the first call finds that
            self._channel.send(first_message)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def call(self, request: Any) -> Any:
        """Returns the answer. Raises an exception if the process ends first."""
        self._channel.send(request)
        return self._channel.receive()

    def kill(self) -> None:
        """Kills the process and all processes that the user's code started in it."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self, timeout: float = _REAP_TIMEOUT_SECONDS) -> str:
        """Waits until the process ends, and kills it after `timeout` seconds. Returns `exit status
        1` or `signal 9 (SIGKILL)`."""
        self._channel.close()
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()
        if status >= 0:
            return f"exit status {status}"
        name = {item.value: item.name for item in signal.Signals}.get(-status, "real-time")
        return f"signal {-status} ({name})"


def main(descriptor: int, parent: int) -> None:
    """Answers the requests on a socket, given its file descriptor, until the parent closes it."""
    # Ctrl-C at a terminal is for the parent, which ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The kernel kills this process when the thread that started it ends, however it ends.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the call above
        os._exit(1)
    os.set_inheritable(descriptor, False)
    channel = Channel(socket.socket(fileno=descriptor))
    # A process forked by the user's code would answer too, or hold the channel open after this one
    # has ended, while the parent waits for the channel's end.
    os.register_at_fork(after_in_child=channel.close)
    with contextlib.suppress(EOFError, OSError):  # the parent has closed its end
        name, argument = channel.receive()
        module, _, attribute = name.partition(":")
        handle = getattr(importlib.import_module(module), attribute)(argument)
        while True:
            channel.send(_answer(handle, channel.receive()))


def _answer(handle: Callable[[Any], Any], request: Any) -> Any:
    """Returns what the handler returns, or the error that it raised."""
    try:
        return handle(request)
    except InfeedError as error:
        return error
    except Exception:  # noqa: BLE001 - an error in infeed; the parent logs it
        return ServerError(traceback.format_exc().rstrip())
