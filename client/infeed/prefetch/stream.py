"""Stream: one attempt to read from a server."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from infeed.wire.shared_memory import BlockPool

MAX_DRAIN_SILENCE_SECONDS = 90.0
"""Seconds without a batch on a stream whose end was announced: a proxy may keep it open."""

_RETURN_SECONDS = 0.5
"""Time that free blocks of shared memory wait for a request to return them with."""


@dataclass(eq=False)
class Stream:
    """One attempt to read from a server, from the connection to its end."""

    server: str
    number: int = 0
    """The number of the connection to the server."""
    accepted: bool = False
    draining: bool = False
    """Whether the server has announced the end of the stream."""
    active_at: float = 0.0
    """The time of the last batch, or of the announcement."""
    ended: bool = False
    report_interval: float = 0.0
    """Seconds between reports to the server; 0: it takes none, or has not answered yet."""
    report_at: float = 0.0
    """The earliest monotonic time of the next report."""
    blocks: BlockPool | None = None
    """The shared memory of a stream on this host."""
    returned_at: float = 0.0
    """The monotonic time at which blocks were returned last."""

    @property
    def name(self) -> str:
        """The server's address, with the connection's number unless it is the first."""
        return f"{self.server}#{self.number + 1}" if self.number else self.server

    def seconds_to_report(self, now: float) -> float:
        """Returns the seconds until the next report is due; infinite if the server takes none."""
        return max(0.0, self.report_at - now) if self.report_interval else math.inf

    def returns_blocks(self, now: float) -> bool:
        """Returns whether to return blocks without waiting for a request."""
        blocks = self.blocks  # the reading thread removes them at the end of the stream
        has_free = blocks is not None and blocks.has_free
        return has_free and now - self.returned_at > _RETURN_SECONDS

    def free_blocks(self) -> list[int]:
        """Returns the blocks to return to the server now."""
        self.returned_at = time.monotonic()
        blocks = self.blocks
        return [] if blocks is None else blocks.collect()
