"""Sliding window: how much counters have grown in the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

SAMPLE_INTERVAL_SECONDS = 1.0
"""Minimum time between two samples."""

WINDOW_SECONDS = 10.0
"""The time that a difference covers, once that much has passed."""

_MAX_SAMPLES = 300

Counters = Mapping[str, float]
"""Values that only grow, by name."""


class SlidingWindow:
    """Keeps at most one sample of counters a second, for ten seconds, or for up to five minutes
    until the counter `events` has grown by two: a step can take a minute. Not thread-safe."""

    def __init__(self, events: str | None = None) -> None:
        self._events = events
        self._samples: deque[tuple[float, Counters]] = deque(maxlen=_MAX_SAMPLES)

    @property
    def is_empty(self) -> bool:
        """Whether there is no sample yet."""
        return not self._samples

    def sample(self, now: float, counters: Counters) -> None:
        """Keeps the counters at a monotonic time, unless the last sample is too new."""
        if not self._samples or now >= self._samples[-1][0] + SAMPLE_INTERVAL_SECONDS:
            self._samples.append((now, dict(counters)))

    def difference(
        self, now: float, counters: Counters, seconds: float = WINDOW_SECONDS
    ) -> tuple[float, dict[str, float]]:
        """Returns the length of the window that ends now, and the growth of each counter."""
        if not self._samples:
            return 0.0, dict.fromkeys(counters, 0)
        began, before = self._samples[0]
        for at, sample in reversed(self._samples):
            events = self._events
            if now - at >= seconds and (not events or counters[events] - sample[events] >= 2):
                began, before = at, sample
                break
        grown_by = {name: value - before.get(name, 0) for name, value in counters.items()}
        return max(0.0, now - began), grown_by
