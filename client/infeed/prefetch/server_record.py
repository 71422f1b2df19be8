"""Server record: the requests that a server has in flight, and its speed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_EWMA_DECAY = 0.8
"""Weight of the past in the moving averages: more follows a change of speed more slowly."""

_RATE_SECONDS, _RATE_BATCHES = 10.0, 50
"""Bounds on the batches that a rate covers: over a long distance, fewer come in bursts."""


@dataclass
class ServerRecord:
    """A server since it connected; after a reconnect it may be another process."""

    in_flight: dict[int, float] = field(default_factory=dict)
    """Request time by step, in the order of the requests."""
    timed_out: set[int] = field(default_factory=set)
    """The steps in flight that were reassigned."""
    interval: float = 0.0
    """Mean time from batch to batch; 0 before the first."""
    usual_interval: float = 0.0
    """The same with each batch's share bounded: one late batch does not make a server slow."""
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=_RATE_BATCHES))
    """The last times from batch to batch."""
    lone_latency: float = 0.0
    """Time to the last answer while nothing else arrived: the latency of an idle server."""
    received: int = 0
    """Batches so far."""
    received_at: float = 0.0

    def rate(self, now: float) -> float:
        """Returns the batches per second over the last seconds with requests in flight, at most as
        if the next batch came now; 0 before the first. Callable from any thread."""
        requested_at = next(iter(self.in_flight.copy().values()), now)
        silence = max(0.0, now - max(requested_at, self.received_at))
        last = list(self.intervals.copy())
        return min(_rate(last), _rate([*last, silence])) if last else 0.0

    def waits_for(self, step: int) -> bool:
        """Returns whether the step is in flight and has not timed out."""
        return step in self.in_flight and step not in self.timed_out


def _rate(intervals: list[float]) -> float:
    seconds, batches = 0.0, 0
    while seconds < _RATE_SECONDS and batches < len(intervals):
        batches += 1
        seconds += intervals[-batches]
    return batches / seconds


def ewma(mean: float, value: float) -> float:
    return _EWMA_DECAY * mean + (1 - _EWMA_DECAY) * value if mean else value
