"""Speeds of the servers of one feed: moving averages that quotas and hedges follow from."""

from __future__ import annotations

from collections.abc import Sequence

MIN_HEDGE_DELAY_SECONDS = 1.0
"""Seconds before the next step is requested again, or a server is a straggler, at least: fewer
repeat steps that only came a little late."""

_HEDGE_DELAY_FACTOR = 4.0
"""Multiple of the usual time after which a step is hedged, or a server is a straggler."""

_EWMA_DECAY = 0.8
"""Weight of the past in the moving averages: more follows a change of speed later."""


class ServerSpeeds:
    """Measures servers by name. Not thread-safe."""

    def __init__(self) -> None:
        self._batch_interval: dict[str, float] = {}
        self._last_received_at: dict[str, float] = {}
        self._mean_latency = 0.0

    @property
    def hedge_delay(self) -> float:
        """Seconds after which the next step is requested from a second server."""
        return max(MIN_HEDGE_DELAY_SECONDS, _HEDGE_DELAY_FACTOR * self._mean_latency)

    def knows(self, server: str) -> bool:
        """Returns whether the server has sent a batch."""
        return server in self._batch_interval

    def forget(self, server: str) -> None:
        """Forgets a server: after a reconnect it may be another process."""
        self._batch_interval.pop(server, None)
        self._last_received_at.pop(server, None)

    def measure(self, server: str, requested_at: float, now: float, *, needed: bool) -> None:
        """Updates the server's batch interval and, if the batch was needed, the mean latency.

        A duplicate's latency is not typical; it would delay later hedges.
        """
        began_at = max(requested_at, self._last_received_at.get(server, requested_at))
        self._last_received_at[server] = now
        interval = max(now - began_at, 1e-6)
        self._batch_interval[server] = _ewma(self._batch_interval.get(server), interval)
        if needed:
            self._mean_latency = _ewma(self._mean_latency, now - requested_at)

    def is_straggler(self, server: str, requested_at: float, now: float) -> bool:
        """Returns whether the server's silence is unusual, and another has sent something since.

        Compares with the interval between batches, not with their latency, which grows with the
        number in flight. If no other server has sent anything either, all may be busy.
        """
        since = max(requested_at, self._last_received_at.get(server, 0.0))
        usual = self._batch_interval.get(server) or max(self._batch_interval.values(), default=0.0)
        delay = max(MIN_HEDGE_DELAY_SECONDS, _HEDGE_DELAY_FACTOR * usual)
        last = max(self._last_received_at.values(), default=0.0)
        return last > since and now - since >= delay

    def share(self, server: str, others: Sequence[str]) -> float:
        """Returns the server's share of the speed of all; an unknown speed is the mean."""
        intervals = [self._batch_interval.get(name) for name in (server, *others)]
        known = [interval for interval in intervals if interval]
        mean = sum(known) / len(known) if known else 1.0
        speeds = [1 / (interval or mean) for interval in intervals]
        return speeds[0] / sum(speeds)


def _ewma(mean: float | None, value: float) -> float:
    return _EWMA_DECAY * mean + (1 - _EWMA_DECAY) * value if mean else value
