"""One worker process: its start, the messages to and from it, and how it ended."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from typing import Any

import numpy as np

_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from infeed_server.processes.worker_main import main; main({descriptor}, {parent})"
)
"""Not a module that multiprocessing starts: that would import the main module of this process."""

_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
"""Libraries would start threads for all processors in each worker."""

_STANDARD_ERROR = 2

_REAP_TIMEOUT_SECONDS = 1.0
"""Time from the end of a worker's socket to the end of the worker."""

_COUNT = struct.Struct("=I")


class Channel:
    """One end of a socket pair, which carries Python objects. Used by one thread at a time.

    A message is pickled; the memory of its arrays is sent beside the pickle, without a copy.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

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
        """Returns the next message. Raises `EOFError` or `OSError` when the other end is closed.

        Also `EOFError` for what is no message: the next one cannot be found after it.
        """
        try:
            (count,) = _COUNT.unpack(self._receive_bytes(_COUNT.size))
            sizes = struct.unpack(f"={count}Q", self._receive_bytes(8 * count))
            pickled, *buffers = map(self._receive_bytes, sizes)
            return pickle.loads(pickled, buffers=buffers)  # noqa: S301 - the own process wrote it
        except (EOFError, OSError):
            raise
        except Exception as error:
            raise EOFError(f"the other end of the channel sent no message: {error}") from error

    def close(self) -> None:
        self._socket.close()

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
    """A started worker. The thread that starts it must outlive it; the others may `kill` it."""

    def __init__(self, first_message: Any) -> None:
        """Starts the process, and sends it the first message."""
        ours, theirs = socket.socketpair()
        program = _PROGRAM.format(
            path=[str(folder) for folder in sys.path],
            descriptor=theirs.fileno(),
            parent=os.getpid(),
        )
        try:
            # In its own session, Ctrl-C at a terminal does not reach it.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", program],
                stdin=subprocess.DEVNULL,
                # Standard output belongs to the command: the ready line, or JSON.
                stdout=_STANDARD_ERROR,
                pass_fds=[theirs.fileno()],
                env={**_ONE_THREAD, **os.environ},
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._channel = Channel(ours)
        with contextlib.suppress(OSError):  # it has ended already, which the first call finds
            self._channel.send(first_message)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def call(self, request: Any) -> Any:
        """Returns the answer. Raises `EOFError` or `OSError` when the process ends before."""
        self._channel.send(request)
        return self._channel.receive()

    def kill(self) -> None:
        """Kills the process, and those that the user's code has started in it."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def end(self, timeout: float = _REAP_TIMEOUT_SECONDS) -> str:
        """Waits until the process ends, and kills it after `timeout` seconds.

        Returns `exit status 1` or `signal 9 (SIGKILL)`.
        """
        self._channel.close()
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self._process.wait()
        if status >= 0:
            return f"exit status {status}"
        try:
            return f"signal {-status} ({signal.Signals(-status).name})"
        except ValueError:  # a real-time signal
            return f"signal {-status}"
