"""A clock that only a test advances."""

from __future__ import annotations


class ManualClock:
    """Stands for `time.monotonic`: a call returns `now`, in seconds, which the test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
