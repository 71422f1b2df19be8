"""How much a worker sent, and when: what the kernel counted on the connections it accepted."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from infeed_server.cluster.rounds import Rounds
from infeed_server.cluster.sockets import owned

SAMPLE_SECONDS = 1.0

SMALL_BYTES = 4096
"""Within one sample: what it takes to answer those who ask whether the worker is there, and readers
that are told to wait."""

_ACKED = struct.Struct("=Q")
_ACKED_OFFSET = 120
"""Of `tcpi_bytes_acked` in the kernel's `struct tcp_info`, which only ever grows at its end."""


class Served(Rounds):
    """Sums up what was sent from a port of this process, over connections that come and go.

    What a connection sends after it was last looked at and before it is closed is not counted.
    """

    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("served", SAMPLE_SECONDS)
        self._port = port
        self._clock = clock
        self._open: dict[int, int] = {}
        """What was sent on each connection that is open, by the inode of its socket."""
        self._total = 0
        self._sent = clock()

    @property
    def bytes(self) -> int:
        """Sent since the start, and received by the other end."""
        return self._total

    @property
    def connections(self) -> int:
        """That are open, also those of who only asks."""
        return len(self._open)

    @property
    def idle_seconds(self) -> float:
        """Since more was sent than answers to questions."""
        return self._clock() - self._sent

    def look(self) -> None:
        now = {
            found.inode: _acked(found.socket) for found in owned(self._port) if not found.listens
        }
        # An inode that counts less than before is a later socket's.
        grown = sum(
            count - (before if (before := self._open.get(inode, 0)) <= count else 0)
            for inode, count in now.items()
        )
        self._open = now
        if grown:
            self._total += grown
        if grown > SMALL_BYTES:
            self._sent = self._clock()


def _acked(connection: socket.socket) -> int:
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED_OFFSET + _ACKED.size)
    # A kernel of before 2015 does not count.
    return int(_ACKED.unpack_from(told, _ACKED_OFFSET)[0]) if len(told) > _ACKED_OFFSET else 0
