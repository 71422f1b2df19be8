"""Messages between a process and its workers: Python objects over a socket.

A message is pickled; the memory of its arrays is sent beside the pickle, without a copy.
"""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_COUNT = struct.Struct("=I")

_MAX_PARTS_AT_ONCE = 512
"""Parts that one system call sends: half of Linux's limit."""


class Channel:
    """One end of a socket pair. Used by one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, message: Any) -> None:
        """Raises `OSError` when the other end is closed."""
        buffers: list[pickle.PickleBuffer] = []
        pickled = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        parts = [memoryview(pickled), *(buffer.raw() for buffer in buffers)]
        sizes = struct.pack(f"={len(parts)}Q", *(part.nbytes for part in parts))
        self._send_parts([memoryview(_COUNT.pack(len(parts)) + sizes), *parts])

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

    def _send_parts(self, parts: Sequence[memoryview]) -> None:
        waiting = [part for part in parts if part.nbytes]
        while waiting:
            sent = self._socket.sendmsg(waiting[:_MAX_PARTS_AT_ONCE])
            while waiting and sent >= waiting[0].nbytes:
                sent -= waiting.pop(0).nbytes
            if sent:
                waiting[0] = waiting[0][sent:]

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
