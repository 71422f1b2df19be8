"""The budget of frames of a connection: a peer may not keep the server busy with cheap frames.

h2 takes about as long for an empty frame as for a request, and the interpreter does nothing else
meanwhile, so a flood on one connection would starve the streams of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_DATA, _HEADERS, _RESET, _WINDOW_UPDATE = 0, 1, 3, 8

_HEADERS_COST = 4
"""Charge for a stream's headers, in frames: they take as long as so many."""

_RESET_COST = 6
"""Charge for the reset of an admitted call: a thread had begun to answer it, and is stopped."""

_BYTES_PER_FRAME = 256
"""Bytes of headers or settings that are charged like one more frame."""

_ANSWER_FRAMES = 4
"""Frames that each message sent entitles a peer to: its request, two window updates, a ping."""

_SENT_BYTES_PER_FRAME = 1 << 13
"""Sent bytes that entitle a peer to one more frame; window updates are for larger parts."""

_MAX_EARNED_FRAMES = 1 << 13
"""Frames that sent data can entitle to besides a burst: some peers reset a stream once for each
frame that they get after its end, and 64 MiB can be on their way."""

_CALL_FRAMES = 16
"""Frames that each answered call entitles a peer to."""


class Rate(NamedTuple):
    """Frames that may be received at once, and in each second after that."""

    burst: float
    per_second: float


UNADMITTED_RATE = Rate(300, 20)
"""Frames of a connection on which no call was admitted yet."""

ADMITTED_RATE = Rate(3000, 400)
"""Frames of a connection, besides those that the data it is sent entitles it to."""

STREAM_RATE = Rate(1100, 0)
"""Frames of an admitted stream: as many requests as it may leave unanswered, and a few more."""

POOR_RECORD_RATE = Rate(300, 20)
"""TLS records of a connection that hold less than a frame's header, such as key updates: OpenSSL
takes as long for one as for a full one, and the frames' budget sees none of them."""

_STREAMS_RATE = Rate(64, 1)
"""Admitted streams of a connection that get frames of their own; the others share its frames."""


class Allowance:
    """A token bucket."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate.burst
        self._updated = clock()

    def take(self, count: float) -> bool:
        """Uses `count`; returns False when fewer are left."""
        now = self._clock()
        if self._left < self._rate.burst:
            refill = (now - self._updated) * self._rate.per_second
            self._left = min(self._rate.burst, self._left + refill)
        self._updated = now
        if self._left < count:
            return False
        self._left -= count
        return True

    def add(self, count: float) -> None:
        self._left = min(self._rate.burst + _MAX_EARNED_FRAMES, self._left + count)

    def extend(self, rate: Rate) -> None:
        """Changes to a larger rate."""
        self._left += rate.burst - self._rate.burst
        self._rate = rate


class FrameBudget:
    """Charges the frames that one connection receives. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._connection = Allowance(UNADMITTED_RATE, clock)
        self._new_streams = Allowance(_STREAMS_RATE, clock)
        self._streams: dict[int, Allowance | None] = {}
        """The admitted streams, with the frames of their own."""
        self._admitted = False
        self._earned = self._unearned = 0.0

    def charge(self, kind: int, stream_id: int, size: int) -> bool:
        """Charges one received frame; returns False when the budget is used up.

        A stream's own frames pay for its requests, so that many streams can share a connection.
        """
        cost = self._cost(kind, stream_id, size)
        stream = self._streams.get(stream_id) if kind in {_DATA, _WINDOW_UPDATE} else None
        if not ((stream is not None and stream.take(cost)) or self._connection.take(cost)):
            return False
        earned = min(cost, self._earned)
        self._earned -= earned
        self._unearned += cost - earned
        return True

    def take_unearned(self) -> float:
        """Returns, once, the frames charged since the last call that no sent data entitled to."""
        unearned, self._unearned = self._unearned, 0.0
        return unearned

    def admit(self, stream_id: int, *, authenticated: bool) -> None:
        """Extends the budget for a call, unless any peer may make it."""
        self._streams[stream_id] = None
        if not authenticated:
            return
        if not self._admitted:
            self._admitted = True
            self._connection.extend(ADMITTED_RATE)
        if self._new_streams.take(1):
            self._streams[stream_id] = Allowance(STREAM_RATE, self._clock)

    def on_sent(self, stream_id: int, size: int, *, complete: bool) -> None:
        """Extends the budget for `size` bytes of a message; `complete` says that they end it."""
        frames = size / _SENT_BYTES_PER_FRAME + (_ANSWER_FRAMES if complete else 0)
        self._earned = min(_MAX_EARNED_FRAMES, self._earned + frames)
        self._connection.add(frames)
        if (stream := self._streams.get(stream_id)) is not None:
            stream.add(frames)

    def on_answered(self, stream_id: int) -> None:
        """Extends the budget for an admitted call that the server has answered."""
        if stream_id in self._streams:
            self._connection.add(_CALL_FRAMES)

    def forget(self, stream_id: int) -> None:
        """Frees what is kept for a stream that is closed."""
        self._streams.pop(stream_id, None)

    def _cost(self, kind: int, stream_id: int, size: int) -> int:
        if kind in {_DATA, _WINDOW_UPDATE}:
            return 1
        more = size // _BYTES_PER_FRAME
        if kind == _HEADERS:
            return _HEADERS_COST + more
        return (_RESET_COST if kind == _RESET and stream_id in self._streams else 1) + more
