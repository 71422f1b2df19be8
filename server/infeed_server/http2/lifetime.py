"""The lifetime of a connection: it ends without a call, when it is idle, or when it is old."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from infeed_server.http2.refusals import Refusal, RefusedPeerError
from infeed_server.http2.timers import Timers

_IDLE_GRACE_SECONDS = 5.0
"""Time from the GOAWAY of an idle connection to its end, for a call that is on its way."""

_AGE_JITTER = 0.1
"""Part by which ages differ, so that connections made together do not end together."""


@dataclass(frozen=True)
class Lifetime:
    """Times of a connection in seconds; None: no limit."""

    first_call: float | None = None
    """From its beginning to its first admitted call."""
    idle: float | None = None
    """Without an open stream."""
    age: float | None = None
    """Until it takes no new streams. Clients then open another connection."""
    age_grace: float = 60.0
    """From then to its end."""


class ExpiredError(ConnectionAbortedError):
    """The connection's time is over."""


class NoCallError(RefusedPeerError):
    """No call was admitted in time."""

    reason: ClassVar[Refusal] = "no_call"


class LifetimeTimers:
    """Ends one connection in time, by timers on its reading thread."""

    def __init__(self, lifetime: Lifetime, timers: Timers, drain: Callable[[], None]) -> None:
        """`drain` refuses new streams; open ones continue."""
        self._lifetime = lifetime
        self._timers = timers
        self._drain = drain
        self._admitted = False
        self._idle_since: float | None = time.monotonic()

    def start(self) -> None:
        times = self._lifetime
        if times.first_call is not None:
            self._timers.after(times.first_call, self._require_call)
        if times.idle is not None:
            self._timers.after(times.idle, self._check_idle)
        if times.age is not None:
            jitter = random.uniform(1 - _AGE_JITTER, 1 + _AGE_JITTER)  # noqa: S311 - no secret
            self._timers.after(times.age * jitter, self._retire)

    def on_admitted(self) -> None:
        self._admitted = True

    def on_streams(self, count: int) -> None:
        """Notes how many streams are open. Callable from any thread."""
        self._idle_since = None if count else time.monotonic()

    def _require_call(self) -> None:
        if not self._admitted:
            self._drain()
            raise NoCallError(f"no call within {self._lifetime.first_call:g} s")

    def _check_idle(self) -> None:
        limit, since = self._lifetime.idle, self._idle_since
        assert limit is not None
        left = limit if since is None else since + limit - time.monotonic()
        if left > 0:
            self._timers.after(left, self._check_idle)
        else:
            self._drain()
            self._timers.after(_IDLE_GRACE_SECONDS, self._end_idle)

    def _end_idle(self) -> None:
        if self._idle_since is None:  # a call was on its way; no other can follow it
            self._timers.after(_IDLE_GRACE_SECONDS, self._end_idle)
        else:
            raise ExpiredError(f"no call for {self._lifetime.idle:g} s")

    def _retire(self) -> None:
        self._drain()
        self._timers.after(self._lifetime.age_grace, self._expire)

    def _expire(self) -> None:
        raise ExpiredError(f"it is older than {self._lifetime.age:g} s")
