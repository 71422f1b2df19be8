"""Log of trainers: a line when one connects, leaves or is lost, at most one line a second."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc

from infeed_server.observe.jobs import ConnectedTrainer

log = logging.getLogger(__name__)

LINE_INTERVAL_SECONDS = 1.0
"""Minimum time between two lines; events in between are counted, in one line at its end."""

_MAX_FEED_ID_CHARS = 8
"""Characters of the id of a feed in a line; the client chooses it, at random."""


def trainer_fields(trainer: ConnectedTrainer) -> dict[str, Any]:
    """Returns the keys that lines of the log about a trainer have in JSON."""
    return {
        "pipeline": trainer.job.pipeline,
        "rank": trainer.rank,
        "world_size": trainer.job.world_size,
        "feed": ascii(trainer.feed_id[:_MAX_FEED_ID_CHARS])[1:-1],
        "position": trainer.position,
        "peer": trainer.peer,
    }


class TrainerLog:
    """Logs the trainers of a server. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._next_line_at = -math.inf
        self._left_out: Counter[str] = Counter()

    def on_begin(self, trainer: ConnectedTrainer) -> None:
        """Logs a trainer that has sent its first request."""
        self._add("connected", trainer)

    def on_end(self, trainer: ConnectedTrainer, status: grpc.StatusCode) -> None:
        """Logs the end of a stream: by the trainer, on purpose or not, or with an error."""
        if trainer.position is not None:
            left = status in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)
            self._add("left" if left else f"ended with {status.name}", trainer)

    def flush(self) -> None:
        """Logs the count of what was left out; called every second."""
        with self._lock:
            left_out, self._left_out = self._left_out, Counter()
            if left_out:
                self._next_line_at = self._clock() + LINE_INTERVAL_SECONDS
        if left_out:
            counts = ", ".join(f"{count} {event}" for event, count in left_out.items())
            extra = {"fields": {"left_out": left_out.total()}}
            log.info("trainers; without a line: %s", counts, extra=extra)

    def _add(self, event: str, trainer: ConnectedTrainer) -> None:
        with self._lock:
            if self._clock() < self._next_line_at:
                self._left_out[event] += 1
                return
            self._next_line_at = self._clock() + LINE_INTERVAL_SECONDS
        fields: dict[str, Any] = {"event": event, **trainer_fields(trainer)}
        text = (
            "trainer %(event)s: %(pipeline)s, rank %(rank)d of %(world_size)d, feed %(feed)s, "
            "position %(position)d, %(peer)s"
        )
        log.info(text, fields, extra={"fields": fields})
