"""The limit on reading up to a position: a cursor may name one that is years away."""

from __future__ import annotations

from infeed_server.engines.sequential import errors

MAX_SEEK_SECONDS = 24 * 3600.0
"""A position that is further away than this is refused. A run that took so long to get there can
hardly use a resume that takes as long."""

MIN_SAMPLE_SECONDS = 60.0
"""Reading time before the first estimate. Less, and a buffer that is filled again at the beginning
of an epoch could make a near position look far."""


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
