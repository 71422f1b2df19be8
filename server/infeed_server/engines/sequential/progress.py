"""Progress of requests that take long: messages in the log, and a limit on reading ahead."""

from __future__ import annotations

import logging
import time

from infeed_server.engines.sequential import errors
from infeed_server.engines.sequential.ranks import RankTracker

log = logging.getLogger(__name__)

_LOG_INTERVAL_SECONDS = 10.0
"""Period of the messages of one request; the first comes after as long, as most take no time."""

_MAX_NAMED_RANKS = 8
"""Ranks named in a message; there can be thousands."""

MAX_SEEK_SECONDS = 24 * 3600.0
"""A position that is further away than this is refused. A run that took so long to get there can
hardly use a resume that takes as long."""

MIN_SAMPLE_SECONDS = 60.0
"""Reading time before the first estimate. Less, and a buffer that is filled again at the beginning
of an epoch could make a near position look far."""


class ProgressLogger:
    """Logs the progress of one request periodically."""

    def __init__(self, pipeline: str, rank: int, begin: int, target: int) -> None:
        """`begin` is the reader's current position, `target` the position that it must reach."""
        self._pipeline = pipeline
        self._rank = rank
        self._begin = begin
        self._target = target
        self._next = time.monotonic() + _LOG_INTERVAL_SECONDS

    def log_reading(self, position: int) -> None:
        if self._is_due():
            log.info(
                "%s: reading to position %d; at %d, %.0f %% of the way",
                self._pipeline,
                self._target,
                position,
                100 * (position - self._begin) / (self._target - self._begin),
            )

    def log_waiting(self, ranks: RankTracker, reason: str) -> None:
        # A rank that waits for its own trainer is no news.
        slowest = [rank for rank in ranks.slowest if rank != self._rank]
        if slowest and self._is_due():
            more = ", ..." if len(slowest) > _MAX_NAMED_RANKS else ""
            log.warning(
                "%s: rank %d of %d waits for rank %s: %s",
                self._pipeline,
                self._rank,
                ranks.world_size,
                ", ".join(map(str, slowest[:_MAX_NAMED_RANKS])) + more,
                reason,
            )

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _LOG_INTERVAL_SECONDS
        return True


class SeekGuard:
    """Estimates, from the blocks read so far, when a read reaches a requested position."""

    def __init__(self, pipeline: str, target: int) -> None:
        self._pipeline = pipeline
        self._target = target
        self._begin: int | None = None
        """The end of the first block, which takes longer: buffers are filled for it."""
        self._seconds = 0.0

    def on_block(self, position: int, seconds: float) -> None:
        """Counts a block that ends at `position`, and took so long to read.

        Raises `CursorError` when the target is too far away.
        """
        if self._begin is None:
            self._begin = position
            return
        self._seconds += seconds
        if position >= self._target or self._seconds < MIN_SAMPLE_SECONDS:
            return
        rate = (position - self._begin) / self._seconds
        left = (self._target - position) / rate
        if left > MAX_SEEK_SECONDS:
            raise errors.too_far(self._pipeline, self._target, rate, left)
