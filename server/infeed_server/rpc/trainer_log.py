"""Log of trainers: a line when one connects, leaves or is lost, at most one line a second."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from infeed.v1 import stream_pb2

log = logging.getLogger(__name__)

LINE_INTERVAL_SECONDS = 1.0
"""Minimum time between two lines; events in between are counted, in one line at its end."""

_MAX_FEED_ID_CHARS = 8
"""Characters of the id of a feed in a line; the client chooses it, at random."""


class FeedProgress:
    """The position of a trainer's stream: the end of the last answered request."""

    def __init__(
        self, message: stream_pb2.StreamOpen, peer: str, on_begin: Callable[[FeedProgress], None]
    ) -> None:
        """`on_begin` is called at the first request, which has the position of the trainer."""
        self.position: int | None = None
        """None before the first request."""
        self._message = message
        self._peer = peer
        self._on_begin = on_begin
        self._ends: deque[int] = deque()

    def watch(
        self, requests: Iterator[stream_pb2.StreamBatchesRequest]
    ) -> Iterator[stream_pb2.StreamBatchesRequest]:
        """Yields the requests after the first message of the stream."""
        for request in requests:
            if request.WhichOneof("event") == "batch":
                if self.position is None:
                    self.position = request.batch.start
                    self._on_begin(self)
                self._ends.append(request.batch.start + request.batch.count)
            yield request

    def on_sent(self) -> None:
        """Notes that the oldest request is answered."""
        self.position = self._ends.popleft()

    @property
    def fields(self) -> dict[str, Any]:
        """The keys of the line in JSON."""
        return {
            "pipeline": self._message.pipeline,
            "rank": self._message.rank,
            "world_size": self._message.world_size or 1,
            "feed": ascii(self._message.feed_id[:_MAX_FEED_ID_CHARS])[1:-1],
            "position": self.position,
            "peer": self._peer,
        }


class TrainerLog:
    """Logs the trainers of a server. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next_line_at = -math.inf
        self._left_out: Counter[str] = Counter()

    def on_begin(self, feed: FeedProgress) -> None:
        """Logs a trainer that has sent its first request."""
        self._add("connected", feed)

    def on_end(self, feed: FeedProgress, status: grpc.StatusCode) -> None:
        """Logs the end of a stream: by the trainer, on purpose or not, or with an error."""
        if feed.position is not None:
            left = status in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)
            self._add("left" if left else f"ended with {status.name}", feed)

    def flush(self) -> None:
        """Logs the count of what was left out; called every second."""
        with self._lock:
            left_out = self._begin_line() if self._left_out else None
        if left_out:
            fields = {"left_out": left_out.total()}
            log.info("trainers%s", _describe(left_out), extra={"fields": fields})

    def _add(self, event: str, feed: FeedProgress) -> None:
        with self._lock:
            if self._clock() < self._next_line_at:
                self._left_out[event] += 1
                return
            left_out = self._begin_line()
        fields: dict[str, Any] = {"event": event, **feed.fields}
        text = (
            "trainer %(event)s: %(pipeline)s, rank %(rank)d of %(world_size)d, feed %(feed)s, "
            "position %(position)d, %(peer)s"
        )
        log.info(text + _describe(left_out), fields, extra={"fields": fields})

    def _begin_line(self) -> Counter[str]:
        """Returns the events that no line has yet, by their number."""
        self._next_line_at = self._clock() + LINE_INTERVAL_SECONDS
        left_out, self._left_out = self._left_out, Counter()
        return left_out


def _describe(left_out: Counter[str]) -> str:
    if not left_out:
        return ""
    return "; without a line: " + ", ".join(f"{count} {event}" for event, count in left_out.items())
