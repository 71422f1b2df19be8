"""What a feed did for its trainer, in numbers and in one line."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

STARVED_SECONDS = 0.001
"""A step that waited longer for its batch was starved."""

_INPUT_BOUND_SHARE = 0.05
_LEAST_WAIT = 1e-6
_BINS_PER_DECADE = 32
_DECADES = 10  # from a microsecond to some three hours


@dataclass(frozen=True)
class Stats:
    """The numbers of a feed so far.

    The wait before the first batch is the start-up; it stands alone and is in no other number.
    Percentiles are within 4 %. `wait_share` is the share of the time between the first and the
    last batch that the trainer spent waiting, from 0 to 1. `hedges` counts the batches that were
    asked of a second server because the first took too long. `prefetched_bytes` is what waits at
    this moment, as it travelled; with what is under way it takes no more than
    `prefetch_limit_bytes`.
    """

    steps: int
    samples: int
    first_batch_seconds: float
    wait_p50_seconds: float
    wait_p99_seconds: float
    wait_max_seconds: float
    wait_share: float
    starved_steps: int
    bytes: int
    bytes_per_second: float
    samples_per_second: float
    reconnects: int
    hedges: int
    prefetched_bytes: int
    prefetch_limit_bytes: int
    servers: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """One line: who waits for whom."""
        if self.steps < 2:
            return f"no verdict yet: {self.steps} batch{'es' * (self.steps == 0)} taken"
        share = f"{100 * self.wait_share:.1f} % of the time"
        if self.wait_share > _INPUT_BOUND_SHARE:
            return (
                f"input-bound: the trainer waited {share} "
                f"({self.starved_steps} of {self.steps - 1} steps starved)"
            )
        return f"compute-bound: the trainer waited {share}; the input keeps up"

    def __str__(self) -> str:
        waits = (self.wait_p50_seconds, self.wait_p99_seconds, self.wait_max_seconds)
        p50, p99, longest = (_seconds(wait) for wait in waits)
        servers = ", ".join(self.servers) or "nobody"
        plural = "" if self.reconnects == 1 else "s"
        hedged = f", {self.hedges} asked twice" if self.hedges else ""
        lines = (
            f"{self.verdict}",
            f"{self.steps} steps, {self.samples} samples",
            f"{self.samples_per_second:.0f} samples/s, {self.bytes_per_second / 1e6:.1f} MB/s",
            f"first batch after {_seconds(self.first_batch_seconds)}",
            f"then waits of p50 {p50}, p99 {p99}, max {longest}",
            f"{self.reconnects} reconnect{plural}{hedged}, served by {servers}",
        )
        return "\n  ".join(lines)


@dataclass
class Tally:
    """What a feed's servers have been up to."""

    servers: list[str] = field(default_factory=list)
    """Those that were ever connected, in the order in which they came."""
    losses: int = 0
    reconnects: int = 0
    hedges: int = 0
    prefetched_bytes: int = 0
    """What waits for the trainer."""
    prefetch_limit_bytes: int = 0
    """What waits and what is under way may take together."""


class Meter:
    """Counts as the trainer takes batches, in memory that does not grow. Not thread-safe."""

    def __init__(self) -> None:
        self.steps = 0
        self.samples = 0
        self.bytes = 0
        self._first: tuple[int, int, float] = (0, 0, 0.0)  # samples, bytes, wait
        self._begin = self._end = 0.0
        self._waited = self._longest = 0.0
        self._starved = 0
        self._bins = [0] * (_BINS_PER_DECADE * _DECADES + 1)

    def took(self, asked_at: float, got_at: float, samples: int, payload_bytes: int) -> None:
        """The trainer asked for a batch and got it, at these times (monotonic seconds)."""
        wait = got_at - asked_at
        self.steps += 1
        self.samples += samples
        self.bytes += payload_bytes
        self._end = got_at
        if self.steps == 1:
            self._begin, self._first = got_at, (samples, payload_bytes, wait)
            return
        self._waited += wait
        self._longest = max(self._longest, wait)
        self._starved += wait > STARVED_SECONDS
        self._bins[_bin(wait)] += 1

    def stats(self, tally: Tally) -> Stats:
        span = self._end - self._begin
        samples, payload_bytes, first_wait = self._first
        return Stats(
            steps=self.steps,
            samples=self.samples,
            first_batch_seconds=first_wait,
            wait_p50_seconds=self._quantile(0.50),
            wait_p99_seconds=self._quantile(0.99),
            wait_max_seconds=self._longest,
            wait_share=self._waited / span if span else 0.0,
            starved_steps=self._starved,
            bytes=self.bytes,
            bytes_per_second=(self.bytes - payload_bytes) / span if span else 0.0,
            samples_per_second=(self.samples - samples) / span if span else 0.0,
            reconnects=tally.reconnects,
            hedges=tally.hedges,
            prefetched_bytes=tally.prefetched_bytes,
            prefetch_limit_bytes=tally.prefetch_limit_bytes,
            servers=tuple(tally.servers),
        )

    def _quantile(self, q: float) -> float:
        rank = math.ceil(q * sum(self._bins))
        seen = 0
        for index, count in enumerate(self._bins):
            seen += count
            if count and seen >= rank:
                return min(self._longest, _middle(index))
        return 0.0


def _bin(wait: float) -> int:
    if wait <= _LEAST_WAIT:
        return 0
    index = math.ceil(_BINS_PER_DECADE * math.log10(wait / _LEAST_WAIT))
    return min(index, _BINS_PER_DECADE * _DECADES)


def _middle(index: int) -> float:
    return float(_LEAST_WAIT * 10 ** ((index - 0.5) / _BINS_PER_DECADE))


def _seconds(value: float) -> str:
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


__all__ = ["STARVED_SECONDS", "Meter", "Stats", "Tally"]
