"""Raw TCP server and client: the machine's limit for one connection.

    python -m benchmarks.tcp DATASET

Sends one data set's batch repeatedly on each connection, each time after a header with its size.
Prints `ready PORT`.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from benchmarks.arrays import BATCHES

_HEADER = struct.Struct("<Q")
"""Size of the following batch in bytes."""


def main() -> None:
    batch = BATCHES[sys.argv[1]]()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("ready", listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_send, args=(connection, batch), daemon=True).start()


def _send(connection: socket.socket, batch: npt.NDArray[np.generic]) -> None:
    payload = memoryview(batch).cast("B")
    header = _HEADER.pack(payload.nbytes)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        with connection:
            while True:
                connection.sendall(header)
                connection.sendall(payload)
    except (BrokenPipeError, ConnectionResetError):
        return


def batches(address: str, dataset: str) -> Iterator[npt.NDArray[np.generic]]:
    """Yields a server's batches in one reused buffer: a batch is valid until the next one."""
    host, port = address.rsplit(":", 1)
    batch = np.empty_like(BATCHES[dataset]())
    whole = memoryview(batch).cast("B")
    header = bytearray(_HEADER.size)
    with socket.create_connection((host, int(port))) as connection:
        while True:
            _fill(connection, memoryview(header))
            (size,) = _HEADER.unpack(header)
            if size != whole.nbytes:
                raise ConnectionError(f"received a batch of {size} bytes, not of {whole.nbytes}")
            _fill(connection, whole)
            yield batch


def _fill(connection: socket.socket, rest: memoryview) -> None:
    while rest:
        count = connection.recv_into(rest)
        if not count:
            raise ConnectionError("the server ended the connection")
        rest = rest[count:]


if __name__ == "__main__":
    main()
