"""Progress of requests that take long, as messages in the log."""

from __future__ import annotations

import logging
import time

from infeed_server.engines.sequential.ranks import RankTracker

log = logging.getLogger(__name__)

_LOG_INTERVAL_SECONDS = 10.0
"""Period of the messages of one request; the first comes after as long, as most take no time."""

_MAX_NAMED_RANKS = 8
"""Ranks named in a message; there can be thousands."""


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
