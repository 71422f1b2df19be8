"""Progress of a request that takes long: messages in the log, and a limit on reading ahead."""

from __future__ import annotations

import logging
import time

from infeed.shared.errors import CursorError
from infeed_server.engines.base import Request
from infeed_server.engines.sequential.ranks import RankTracker

log = logging.getLogger(__name__)

_LOG_INTERVAL_SECONDS = 10.0
"""Period of the messages of one request; the first comes after as long, as most take no time."""

_MAX_NAMED_RANKS = 8
"""Ranks named in a message; there can be thousands."""

_MAX_SEEK_SECONDS = 24 * 3600.0
"""A position that takes longer to reach is refused; a larger bound only hides a wrong cursor."""

_MIN_SAMPLE_SECONDS = 60.0
"""Reading time before the first estimate. With less, a buffer that is filled at the beginning of an
epoch could make a near position look far."""


class ReadProgress:
    """Logs periodically how far the read for one request is, and estimates its time."""

    def __init__(self, pipeline: str, rank: int, request: Request, begin: int, target: int) -> None:
        """`begin` is the reader's current position, `target` the position that it must reach."""
        self.request = request
        self._pipeline = pipeline
        self._rank = rank
        self._begin = begin
        self._target = target
        self._first_end: int | None = None
        """The end of the first block, which takes longer: buffers are filled for it."""
        self._seconds = 0.0
        self._next = time.monotonic() + _LOG_INTERVAL_SECONDS

    def on_block(self, position: int, seconds: float) -> None:
        """Counts a block that ends at `position`, and took so long to read.

        Raises `CursorError` when the target is too far away.
        """
        if self._is_due():
            percent = 100 * (position - self._begin) / (self._target - self._begin)
            log.info(
                "%s: reading to position %d; at %d, %.0f %% of the way",
                *(self._pipeline, self._target, position, percent),
            )
        if self._first_end is None:
            self._first_end = position
            return
        self._seconds += seconds
        left, done = self._target - position, position - self._first_end
        if self._seconds >= _MIN_SAMPLE_SECONDS and left * self._seconds > _MAX_SEEK_SECONDS * done:
            raise CursorError(
                f"position {self._target} of {self._pipeline!r} is too far away: reading up to it, "
                f"at {done / self._seconds:.0f} positions a second, would take more than a day; "
                "the cursor belongs to other data, or start without it",
                pipeline=self._pipeline,
                position=self._target,
            )

    def log_waiting(self, ranks: RankTracker, reason: str) -> None:
        # A rank that waits for its own trainer is no news.
        slowest = [rank for rank in ranks.slowest if rank != self._rank]
        if slowest and self._is_due():
            more = ", ..." if len(slowest) > _MAX_NAMED_RANKS else ""
            names = ", ".join(map(str, slowest[:_MAX_NAMED_RANKS])) + more
            log.warning(
                "%s: rank %d of %d waits for rank %s: %s",
                *(self._pipeline, self._rank, ranks.world_size, names, reason),
            )

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOG_INTERVAL_SECONDS
        return True
