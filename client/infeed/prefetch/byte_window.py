"""Byte-bounded prefetch window: the steps that a feed may request ahead of its consumer."""

from __future__ import annotations

MIN_BATCHES = 2
"""Minimum batches in the window, however large: with one, no transfer overlaps a training step."""

MAX_BATCHES = 64
"""Maximum batches in the window, however small."""


class PrefetchWindow:
    """Bounds the batches in flight and buffered. `batch_bytes` is None if batches vary in size;
    then the largest received so far counts."""

    def __init__(
        self, prefetch_bytes: int, batch_bytes: int | None, max_batches: int = MAX_BATCHES
    ) -> None:
        self._prefetch_bytes = prefetch_bytes
        self._max_batches = max_batches
        self._batch_bytes = batch_bytes or 0
        self._consumed = 0
        self.received_bytes = 0
        """Bytes of all batches received so far, consumed or not."""

    @property
    def depth(self) -> int:
        """Batches that may be in flight and buffered together."""
        if not self._batch_bytes:
            return MIN_BATCHES
        return min(self._max_batches, max(MIN_BATCHES, self._prefetch_bytes // self._batch_bytes))

    def is_half_ready(self, next_step: int) -> bool:
        """Returns whether the next half of the window is ready for the consumer, in order."""
        return 2 * (next_step - self._consumed) >= self.depth

    @property
    def step_limit(self) -> int:
        """The first step that may not be requested yet."""
        return self._consumed + self.depth

    @property
    def max_bytes(self) -> int:
        """Bytes that may be in flight and buffered together."""
        return self.depth * self._batch_bytes or self._prefetch_bytes

    def on_received(self, batch_bytes: int) -> None:
        """Counts a received batch."""
        self._batch_bytes = max(self._batch_bytes, batch_bytes)
        self.received_bytes += batch_bytes

    def on_consumed(self, steps: int) -> None:
        """Moves the window to the first unconsumed step; never moves it back."""
        self._consumed = max(self._consumed, steps)
