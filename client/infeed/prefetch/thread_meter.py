"""Meters: what the threads of a feed have done, counted by each thread for itself."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class ThreadMeter:
    """Totals of one thread, which alone writes them; any thread may read them."""

    receive_seconds: float = 0.0
    """From the first to the last byte of each batch."""
    finish_seconds: float = 0.0
    """Of finish transforms."""
    bytes: int = 0
    """Received payload."""
    cpu_seconds: float = 0.0
    """Processor time of the thread."""

    def update_cpu(self) -> None:
        """Reads the processor time of the calling thread."""
        self.cpu_seconds = time.thread_time()


def counters(meters: Iterable[ThreadMeter]) -> dict[str, float]:
    """Returns the sums over threads."""
    meters = tuple(meters)
    return {
        "receive_seconds": sum(each.receive_seconds for each in meters),
        "finish_seconds": sum(each.finish_seconds for each in meters),
        "bytes": sum(each.bytes for each in meters),
        "cpu_seconds": sum(each.cpu_seconds for each in meters),
    }
