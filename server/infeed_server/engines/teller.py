"""What the log is told of a request that takes long."""

from __future__ import annotations

import logging
import time

from infeed_server.engines.ranks import Ranks

log = logging.getLogger(__name__)

_TELL_SECONDS = 10.0

_NAMED = 8
"""Ranks that are named; there can be thousands."""


class Teller:
    """Says now and then what a request of one rank is at; not at once, for most take no time."""

    def __init__(self, pipeline: str, rank: int, begin: int, target: int) -> None:
        """The reading stands at position `begin` and is to come to `target`."""
        self._pipeline = pipeline
        self._rank = rank
        self._begin = begin
        self._target = target
        self._next = time.monotonic() + _TELL_SECONDS

    def reads(self, position: int) -> None:
        if self._due():
            log.info(
                "%s: reading on to position %d; at %d, %.0f %% of the way",
                self._pipeline,
                self._target,
                position,
                100 * (position - self._begin) / (self._target - self._begin),
            )

    def waits(self, ranks: Ranks, why: str) -> None:
        # One that waits for its own trainer to take what it asked for is nothing to tell.
        slowest = [rank for rank in ranks.slowest if rank != self._rank]
        if slowest and self._due():
            more = ", ..." if len(slowest) > _NAMED else ""
            log.warning(
                "%s: rank %d of %d waits for rank %s: %s",
                self._pipeline,
                self._rank,
                ranks.world_size,
                ", ".join(map(str, slowest[:_NAMED])) + more,
                why,
            )

    def _due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + _TELL_SECONDS
        return True


__all__ = ["Teller"]
