"""Simulated trainer: it takes batches of a feed as a training loop does, and sleeps as a step.

An accelerator computes while its host waits, so a sleep takes as little of the host as a real step.
What a trainer has done reaches the load test a few times a second, together with its cursor: what
comes after it is lost if the trainer is killed, as are the steps after a checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from infeed.client import connect
from infeed.feed import Feed
from infeed.loadtest.records import STEP, Point, Record
from infeed.shared.errors import FeedClosedError, InfeedError
from infeed.shared.spec import Array

POINT_INTERVAL_SECONDS = 0.25
"""Seconds between two points of a trainer: a longer time loses more steps of a killed one."""

_MAX_LATE_SECONDS = 0.1
"""Seconds of lateness that later steps make up for: more would hide that the machine is busy."""

_MAX_MESSAGES = 20
"""Warnings that a point carries: more would show more of a storm of them."""


@dataclass(frozen=True)
class TrainerOptions:
    """What a trainer needs to know."""

    target: str
    pipeline: str
    step_seconds: float
    steps: int | None
    """The steps to make, with those before a resume; None: until it is stopped."""
    connect: Mapping[str, Any] = field(default_factory=dict)
    """Options of `infeed.connect`, but for `state`."""


class _MessageLog(logging.Handler):
    """Keeps the warnings of a trainer, which would reach the terminal from all of them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append((time.monotonic(), record.getMessage()))


def run_process(connection: Connection) -> None:
    """Runs a trainer in a process of its own, which ends when the load test's process does."""
    options, state = connection.recv()
    trainer = _Trainer(connection, options, state)

    def obey() -> None:
        trainer.obey()
        os._exit(1)  # the load test has ended: it could be waiting for a server

    threading.Thread(target=obey, daemon=True).start()
    log = logging.getLogger("infeed")
    log.addHandler(trainer.log)
    log.propagate = False
    trainer.run()
    os._exit(0)


def run_thread(connection: Connection, options: TrainerOptions, state: Any) -> None:
    """Runs a trainer in a thread. Its warnings stay in the log, which all threads share."""
    trainer = _Trainer(connection, options, state)
    threading.Thread(target=trainer.obey, daemon=True).start()
    trainer.run()


class _Trainer:
    """One trainer. `run` and `obey` are for a thread of their own."""

    def __init__(self, connection: Connection, options: TrainerOptions, state: Any) -> None:
        self.log = _MessageLog()
        self._connection, self._options, self._state = connection, options, state
        self._feed: Feed | None = None
        self._connect_seconds = 0.0
        self._steps: list[tuple[float, ...]] = []
        self._ids: list[Array] = []
        """Of the steps since the last point."""
        self._stopping = threading.Event()
        self._is_killed = False
        """Whether it sends no last point."""
        self._stall_seconds = 0.0

    def obey(self) -> None:
        """Follows orders, until the load test closes its end."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                name, value = self._connection.recv()
                if name == "stall":
                    self._stall_seconds = value
                else:
                    self._stop(kill=name == "kill")
        self._stop(kill=True)

    def _stop(self, *, kill: bool) -> None:
        """Ends the trainer, also while it waits for a batch."""
        self._is_killed = self._is_killed or kill
        self._stopping.set()
        if self._feed is not None:
            self._feed.close()

    def run(self) -> None:
        """Trains until the end of its steps, a stop, or an error, and sends records of it."""
        last: Record = None
        try:
            self._train()
        except InfeedError as error:
            last = f"{type(error).__name__}: {error.message}"
        except ConnectionError:
            return  # the load test has closed its end
        except Exception as error:  # noqa: BLE001 - reported with the trainer's rank
            last = f"{type(error).__name__}: {error}"
        if not self._is_killed:
            with contextlib.suppress(OSError):
                self._connection.send(last)

    def _train(self) -> None:
        options, point_at, began = self._options, 0.0, time.monotonic()
        late = 0.0
        # By how much the steps so far were too long: a busy host is late to wake, and the next
        # sleep makes up for it. An accelerator would not be late.
        unanswered_at: float | None = None
        with connect(
            options.target, options.pipeline, state=self._state, **options.connect
        ) as feed:
            self._feed = feed
            self._connect_seconds = time.monotonic() - began
            remaining = None if options.steps is None else options.steps - feed.first_step
            while not self._stopping.is_set() and feed.delivered != remaining:
                requested_at = time.monotonic()
                try:
                    batch = feed.next()
                except FeedClosedError:
                    if not self._stopping.is_set():
                        raise
                    unanswered_at = requested_at
                    break
                received_at = time.monotonic()
                if received_at >= point_at:
                    # Within the step, whose time it takes part of: a host has this time to spare.
                    # The batch is not among the steps yet.
                    self._send(feed, state=feed.state(feed.delivered - 1))
                    point_at = received_at + POINT_INTERVAL_SECONDS
                left = received_at + options.step_seconds - late - time.monotonic()
                if left > 0:
                    time.sleep(left)
                wait, busy = received_at - requested_at, time.monotonic() - received_at
                samples = int(batch.mask.sum())
                self._steps.append((requested_at, wait, busy, batch.start, batch.epoch, samples))
                self._ids.append(batch.sample_ids)
                late = min(max(0.0, late + busy - options.step_seconds), _MAX_LATE_SECONDS)
                if self._stall_seconds:
                    seconds, self._stall_seconds = self._stall_seconds, 0.0
                    self._stopping.wait(seconds)
        if not self._is_killed:
            self._send(feed, state=feed.state(), unanswered_at=unanswered_at)

    def _send(self, feed: Feed, **values: Any) -> None:
        """Sends a point with the steps since the last one."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        messages, self.log.messages = self.log.messages, []
        steps, ids = np.array(self._steps, STEP), np.array(self._ids, np.int64)
        self._steps, self._ids = [], []
        self._connection.send(
            Point(
                steps=steps,
                sample_ids=ids,
                at=time.monotonic(),
                stats=feed.stats(),
                connect_seconds=self._connect_seconds,
                cpu_seconds=usage.ru_utime + usage.ru_stime,
                max_memory_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
                messages=tuple(messages[:_MAX_MESSAGES]),
                **values,
            )
        )
