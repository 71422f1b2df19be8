"""Simulated trainer: a process that takes batches like a training loop, and sleeps for each step.

While an accelerator computes, its host waits, so sleeping loads the host as little as a real step.
The trainer reports its steps to the load test a few times a second.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from infeed.client import connect
from infeed.feed import Feed
from infeed.shared.errors import FeedClosedError, InfeedError
from infeed.shared.spec import Array
from infeed.stats import Stats

_POINT_INTERVAL_SECONDS = 0.25
"""Seconds between two points of a trainer: fewer cost more, and plots need one a second."""

_MAX_LATE_SECONDS = 0.1
"""Seconds of delay that later steps make up for: more would hide a busy machine."""

_MAX_MESSAGES = 20
"""Warnings that a point carries; the rest of a flood of them is dropped."""

_STEP_TIMES = ("requested_at", "wait_seconds", "busy_seconds")
STEP = np.dtype(
    [(name, np.float64) for name in _STEP_TIMES]
    + [(name, np.int64) for name in ("start", "epoch", "samples")]
)
"""One step: the monotonic time of its batch's request, which processes share, the wait for it, the
compute up to the next request, its first position, its epoch, and its filled slots."""


@dataclass(frozen=True)
class Point:
    """The steps since the last point."""

    steps: Array
    """A row of `STEP` per step, in order."""
    sample_ids: Array
    """int64 [steps, slots]."""
    at: float
    """Monotonic seconds."""
    stats: Stats
    """The feed's stats since the trainer connected."""
    messages: tuple[tuple[float, str], ...] = ()
    """The feed's warnings since the last point, with their monotonic times."""
    unanswered_at: float | None = None
    """The time of the request whose batch was missing at the stop; None if there was none."""


Record = Point | str | None
"""A point; at the end, the trainer's error, or None if it made its steps or was stopped."""


def run_process(connection: Connection) -> None:
    """Runs a trainer, which ends together with the load test's process."""
    step_seconds, steps, options = connection.recv()
    _Trainer(connection, step_seconds, steps).run(options)
    os._exit(0)


class _Trainer(logging.Handler):
    """A trainer, which also handles the log of its feed."""

    def __init__(self, connection: Connection, step_seconds: float, steps: int | None) -> None:
        """Without `steps`, it trains until it is stopped."""
        super().__init__(logging.WARNING)
        self._connection, self._step_seconds, self._step_count = connection, step_seconds, steps
        self._feed: Feed | None = None
        self._steps: list[tuple[float, ...]] = []
        self._ids: list[Array] = []
        """Sample ids of the steps since the last point."""
        self._messages: list[tuple[float, str]] = []
        self._stopping = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps a warning, so that not every trainer writes it to the terminal."""
        self._messages.append((time.monotonic(), record.getMessage()))

    def run(self, options: Mapping[str, Any]) -> None:
        """Trains until the end of its steps, a stop or an error, with `options` of `connect`."""
        log = logging.getLogger("infeed")
        log.addHandler(self)
        log.propagate = False
        threading.Thread(target=self._obey, daemon=True).start()
        last: Record = None
        try:
            self._train(options)
        except InfeedError as error:
            last = f"{type(error).__name__}: {error.message}"
        except Exception as error:  # noqa: BLE001 - reported with the trainer's rank
            last = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):
            self._connection.send(last)

    def _obey(self) -> None:
        """Stops when the load test says so, and ends when it ends."""
        with contextlib.suppress(EOFError, OSError):
            self._connection.recv()
            self._stopping.set()
            if self._feed is not None:
                self._feed.close()  # also while it waits for a batch
            self._connection.recv()
        os._exit(1)  # the load test has ended; the trainer may be waiting for a server

    def _train(self, options: Mapping[str, Any]) -> None:
        step_seconds, point_at, late = self._step_seconds, 0.0, 0.0
        # `late` is how much too long the steps so far were: a busy host wakes late, which an
        # accelerator would not, so the next sleep makes up for it.
        unanswered_at: float | None = None
        with connect(**options) as feed:
            self._feed = feed
            while not self._stopping.is_set() and feed.delivered != self._step_count:
                requested_at = time.monotonic()
                try:
                    batch = feed.next()
                except FeedClosedError:
                    unanswered_at = requested_at
                    break
                received_at = time.monotonic()
                if received_at >= point_at:
                    # Part of the step's time, which a host has to spare.
                    self._send(feed)
                    point_at = received_at + _POINT_INTERVAL_SECONDS
                left = received_at + step_seconds - late - time.monotonic()
                if left > 0:
                    time.sleep(left)
                wait, busy = received_at - requested_at, time.monotonic() - received_at
                samples = int(batch.mask.sum())
                self._steps.append((requested_at, wait, busy, batch.start, batch.epoch, samples))
                self._ids.append(batch.sample_ids)
                late = min(max(0.0, late + busy - step_seconds), _MAX_LATE_SECONDS)
        self._send(feed, unanswered_at)

    def _send(self, feed: Feed, unanswered_at: float | None = None) -> None:
        """Sends a point with the steps since the last one."""
        messages, self._messages = self._messages, []
        steps, ids = np.array(self._steps, STEP), np.array(self._ids, np.int64)
        self._steps, self._ids = [], []
        self._connection.send(
            Point(
                steps=steps,
                sample_ids=ids,
                at=time.monotonic(),
                stats=feed.stats(),
                messages=tuple(messages[:_MAX_MESSAGES]),
                unanswered_at=unanswered_at,
            )
        )
