"""Pace of hosts: all connections of one share a rate of frames that no sent data entitles to.

The budget of a connection starts full, so that floods could follow each other, or come on hundreds
of connections at once. Beyond the rate the server reads them later. Feeds do not notice: their
requests are paid for by the batches that they get.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FRAMES_PER_SECOND = 2000.0
"""Rate of one host. A hundred take 2 to 6 ms, so that a flood takes a tenth of one processor; a
hundred trainers need about 2000 to connect."""

BURST_SECONDS = 2.0
"""Time in which a host that has sent nothing may send at once what the rate allows in it."""

_MIN_PURGE_SIZE = 1024


class HostPaces:
    """When each host has paid for its frames, at its rate. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paid_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def charge(self, host: str, frames: float) -> float:
        """Returns the seconds that the host must wait after so many more frames."""
        if not frames:
            return 0.0
        now = self._clock()
        rested = now - BURST_SECONDS
        with self._lock:
            begin = max(rested, self._paid_at.get(host, rested))
            self._paid_at[host] = paid_at = begin + frames / FRAMES_PER_SECOND
            if len(self._paid_at) > _MIN_PURGE_SIZE:
                self._paid_at = {host: at for host, at in self._paid_at.items() if at > rested}
        return max(0.0, paid_at - now)
