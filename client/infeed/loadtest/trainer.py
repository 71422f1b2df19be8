"""One simulated trainer: it takes batches of a feed as a training loop does, and sleeps as a step.

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

from infeed.client import connect
from infeed.feed import Feed
from infeed.loadtest.records import MessageLog, Point, Record, StepLog
from infeed.shared.errors import FeedClosedError, InfeedError

POINT_INTERVAL_SECONDS = 0.25
"""Seconds between two points of a trainer: a longer time loses more steps of a killed one."""

_MAX_LATE_SECONDS = 0.1
"""Seconds of lateness that later steps make up for: more would hide that the machine is busy."""


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


class Control:
    """Orders of the load test to one trainer. Thread-safe."""

    def __init__(self) -> None:
        self.is_killed = False
        """Whether the trainer sends no last point."""
        self._stopping = threading.Event()
        self._feed: Feed | None = None
        self._stall_seconds = 0.0

    @property
    def is_stopping(self) -> bool:
        """Whether the trainer is to end."""
        return self._stopping.is_set()

    def use(self, feed: Feed) -> None:
        """Names the feed that a stop closes, also one that came before."""
        self._feed = feed
        if self.is_stopping:
            feed.close()

    def pause(self) -> None:
        """Waits for the length of a stall, if there is one."""
        if self._stall_seconds:
            seconds, self._stall_seconds = self._stall_seconds, 0.0
            self._stopping.wait(seconds)

    def obey(self, orders: Connection) -> None:
        """Follows orders, until the load test closes its end."""
        try:
            while True:
                name, value = orders.recv()
                if name == "stall":
                    self._stall_seconds = value
                else:
                    self._stop(kill=name == "kill")
        except (EOFError, OSError):
            self._stop(kill=True)

    def _stop(self, *, kill: bool) -> None:
        """Ends the trainer, also while it waits for a batch."""
        self.is_killed = self.is_killed or kill
        self._stopping.set()
        if self._feed is not None:
            self._feed.close()


def run_process(connection: Connection) -> None:
    """Runs a trainer in a process of its own, which ends when the load test's process does."""
    options, state = connection.recv()
    control = Control()

    def obey() -> None:
        control.obey(connection)
        os._exit(1)  # the load test has ended: it could be waiting for a server

    threading.Thread(target=obey, daemon=True).start()
    log, messages = logging.getLogger("infeed"), MessageLog()
    log.addHandler(messages)
    log.propagate = False
    _run(connection, options, state, control, messages)
    os._exit(0)


def run_thread(connection: Connection, options: TrainerOptions, state: Any) -> None:
    """Runs a trainer in a thread."""
    control = Control()
    threading.Thread(target=control.obey, args=(connection,), daemon=True).start()
    # Its warnings stay in the log, which all threads share.
    _run(connection, options, state, control, MessageLog())


def _run(
    records: Connection, options: TrainerOptions, state: Any, control: Control, log: MessageLog
) -> None:
    """Trains until the end of its steps, a stop, or an error, and sends records of it."""
    last: Record = None
    try:
        _train(records, options, state, control, log)
    except InfeedError as error:
        last = f"{type(error).__name__}: {error.message}"
    except (BrokenPipeError, ConnectionError):
        return  # the load test has closed its end
    except Exception as error:  # noqa: BLE001 - reported with the trainer's rank
        last = f"{type(error).__name__}: {error}"
    if not control.is_killed:
        with contextlib.suppress(OSError):
            records.send(last)


def _train(
    records: Connection, options: TrainerOptions, state: Any, control: Control, log: MessageLog
) -> None:
    steps, point_at = StepLog(), 0.0
    late = 0.0
    """By how much the steps so far were too long: a busy host is late to wake, and the next sleep
    makes up for it. An accelerator would not be late."""
    unanswered_at: float | None = None
    began = time.monotonic()
    with connect(options.target, options.pipeline, state=state, **options.connect) as feed:
        control.use(feed)
        connect_seconds = time.monotonic() - began
        remaining = None if options.steps is None else options.steps - feed.first_step
        while not control.is_stopping and feed.delivered != remaining:
            requested_at = time.monotonic()
            try:
                batch = feed.next()
            except FeedClosedError:
                if control.is_stopping:
                    unanswered_at = requested_at
                    break
                raise
            received_at = time.monotonic()
            if received_at >= point_at:
                # Within the step, whose time it takes part of: a host has this time to spare. The
                # batch is not among the steps yet.
                state = feed.state(feed.delivered - 1)
                records.send(_point(feed, steps, connect_seconds, log, state=state))
                point_at = received_at + POINT_INTERVAL_SECONDS
            _sleep_until(received_at + options.step_seconds - late)
            busy = steps.add(batch, requested_at, received_at)
            late = min(max(0.0, late + busy - options.step_seconds), _MAX_LATE_SECONDS)
            control.pause()
    if not control.is_killed:
        last = {"state": feed.state(), "unanswered_at": unanswered_at}
        records.send(_point(feed, steps, connect_seconds, log, **last))


def _point(
    feed: Feed, log: StepLog, connect_seconds: float, messages: MessageLog, **values: Any
) -> Point:
    stats = feed.stats()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    steps, sample_ids = log.take()
    return Point(
        steps=steps,
        sample_ids=sample_ids,
        at=time.monotonic(),
        first_batch_seconds=connect_seconds + stats.first_batch_seconds,
        bytes=stats.bytes,
        reconnects=stats.reconnects,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        max_memory_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        report=stats.report,
        servers=dict(stats.server_reports),
        lost=stats.lost_servers,
        messages=messages.take(),
        **values,
    )


def _sleep_until(at: float) -> None:
    if (seconds := at - time.monotonic()) > 0:
        time.sleep(seconds)
