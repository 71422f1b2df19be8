"""The traffic of a worker, from the kernel's counters of its connections."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

from infeed_server.data_service.sockets import process_sockets
from infeed_server.processes.periodic import PeriodicTask

SAMPLE_INTERVAL_SECONDS = 1.0

MAX_PROBE_BYTES = 4096
"""Bytes in one interval that still count as idle: answers to probes, and to waiting readers."""

_BYTES_ACKED = struct.Struct("=Q")
_BYTES_ACKED_OFFSET = 120
"""The offset of `tcpi_bytes_acked` in `struct tcp_info`, which the kernel only extends."""


class TrafficCounter(PeriodicTask):
    """Counts the bytes sent from a port of this process, over all connections.

    Bytes that a connection sends between its last sample and its end are not counted.
    """

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("served", SAMPLE_INTERVAL_SECONDS, self.run_once)
        self._port = port
        self._clock = clock
        self._open: dict[int, int] = {}
        """Bytes sent on each open connection, by the inode of its socket, which the kernel may
        reuse afterwards."""
        self._sent_bytes = 0
        self._last_sent = clock()

    @property
    def sent_bytes(self) -> int:
        """Bytes sent and acknowledged since the start."""
        return self._sent_bytes

    @property
    def connections(self) -> int:
        """Number of open connections, including those of probes."""
        return len(self._open)

    @property
    def idle_seconds(self) -> float:
        """Seconds since more was sent than answers to probes."""
        return self._clock() - self._last_sent

    def run_once(self) -> None:
        """Samples all connections."""
        current = {
            os.fstat(each.fileno()).st_ino: _acknowledged_bytes(each)
            for each in process_sockets(self._port, listening=False)
        }
        # A count below the previous one belongs to a new socket with the same inode.
        grown = sum(
            count - (before if (before := self._open.get(inode, 0)) <= count else 0)
            for inode, count in current.items()
        )
        self._open = current
        if grown:
            self._sent_bytes += grown
        if grown > MAX_PROBE_BYTES:
            self._last_sent = self._clock()


def _acknowledged_bytes(connection: socket.socket) -> int:
    size = _BYTES_ACKED_OFFSET + _BYTES_ACKED.size
    tcp_info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    # Kernels before 2015 do not have the field.
    if len(tcp_info) <= _BYTES_ACKED_OFFSET:
        return 0
    return int(_BYTES_ACKED.unpack_from(tcp_info, _BYTES_ACKED_OFFSET)[0])
