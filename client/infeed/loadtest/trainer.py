"""One simulated trainer: it takes batches of a feed as a training loop does, and sleeps as a step.

An accelerator computes while its host waits, so a sleep takes as little of the host as a real step.
What a trainer has done reaches the load test a few times a second, together with its cursor: what
comes after it is lost if the trainer is killed, as are the steps after a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from infeed.batch import Batch
from infeed.client import connect
from infeed.errors import FeedClosedError, InfeedError
from infeed.feed import Feed
from infeed.loadtest.records import Failure, Finished, Point, Record, Steps

POINT_INTERVAL_SECONDS = 0.25
"""Between two points of a trainer."""

_MAX_LATE_SECONDS = 0.1
"""Lateness that later steps make up for."""


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
        self._stopping = threading.Event()
        self._feed: Feed | None = None
        self._stall_seconds = 0.0
        self._lock = threading.Lock()

    @property
    def is_stopping(self) -> bool:
        """Whether the trainer is to end."""
        return self._stopping.is_set()

    def use(self, feed: Feed) -> None:
        """Names the feed that a stop closes."""
        with self._lock:
            self._feed = feed
            if self.is_stopping:
                feed.close()

    def stop(self, *, kill: bool = False) -> None:
        """Ends the trainer, also while it waits for a batch; killed, it sends no last point."""
        with self._lock:
            self.is_killed = self.is_killed or kill
            self._stopping.set()
            if self._feed is not None:
                self._feed.close()

    def stall(self, seconds: float) -> None:
        """Makes the trainer pause after its current step."""
        self._stall_seconds = seconds

    def pause(self) -> None:
        """Waits for the length of a stall, if there is one."""
        if self._stall_seconds:
            seconds, self._stall_seconds = self._stall_seconds, 0.0
            self._stopping.wait(seconds)

    def obey(self, orders: Connection) -> None:
        """Reads orders, until the load test closes its end."""
        try:
            while True:
                name, value = orders.recv()
                if name == "stall":
                    self.stall(value)
                else:
                    self.stop(kill=name == "kill")
        except (EOFError, OSError):
            self.stop(kill=True)


class StepLog:
    """The steps since the last point."""

    def __init__(self) -> None:
        self._times: list[tuple[float, float, float, bool]] = []
        self._batches: list[Batch] = []

    def add(self, requested_at: float, received_at: float, ready: bool, batch: Batch) -> float:
        """Adds a step that ends now, and returns the length of its compute.

        The arrays of its batch are let go.
        """
        origin = Batch(
            {},
            start=batch.start,
            epoch=batch.epoch,
            sample_ids=batch.sample_ids,
            mask=batch.mask,
        )
        self._batches.append(origin)
        busy = time.monotonic() - received_at
        self._times.append((requested_at, received_at - requested_at, busy, ready))
        return busy

    def take(self) -> Steps:
        """Returns the steps, and forgets them."""
        times = np.array(self._times, np.float64).reshape(-1, 4)
        batches, self._times, self._batches = self._batches, [], []
        return Steps(
            requested_at=times[:, 0],
            wait_seconds=times[:, 1],
            busy_seconds=times[:, 2],
            ready=times[:, 3] > 0,
            starts=np.array([each.start for each in batches], np.int64),
            sample_ids=np.array([each.sample_ids for each in batches], np.int64),
            epochs=np.array([each.epoch for each in batches], np.int64),
        )


def run_process(connection: Connection, options: TrainerOptions, state: Any) -> None:
    """Runs a trainer in a process of its own, which ends when that of the load test does."""
    # Ctrl-C reaches all processes of a terminal; the load test stops the trainers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    control = Control()

    def obey() -> None:
        control.obey(connection)
        os._exit(1)  # the load test has ended: it could be waiting for a server

    threading.Thread(target=obey, daemon=True).start()
    run_trainer(connection, options, state, control)
    os._exit(0)


def run_thread(connection: Connection, options: TrainerOptions, state: Any) -> None:
    """Runs a trainer in a thread."""
    control = Control()
    threading.Thread(target=control.obey, args=(connection,), daemon=True).start()
    run_trainer(connection, options, state, control)


def run_trainer(records: Connection, options: TrainerOptions, state: Any, control: Control) -> None:
    """Trains until the end of its steps, a stop, or an error, and sends records of it."""
    last: Record = Finished()
    try:
        _train(records, options, state, control)
    except InfeedError as error:
        last = Failure(f"{type(error).__name__}: {error.message}")
    except (BrokenPipeError, ConnectionError):
        return  # the load test has closed its end
    except Exception as error:  # noqa: BLE001 - reported with the trainer's rank
        last = Failure(f"{type(error).__name__}: {error}")
    if not control.is_killed:
        with contextlib.suppress(OSError):
            records.send(last)


def _train(records: Connection, options: TrainerOptions, state: Any, control: Control) -> None:
    log, point_at = StepLog(), 0.0
    late = 0.0
    """By how much the steps so far were too long: a busy host is late to wake, and the next sleep
    makes up for it. An accelerator would not be late."""
    began = time.monotonic()
    with connect(options.target, options.pipeline, state=state, **options.connect) as feed:
        control.use(feed)
        connect_seconds = time.monotonic() - began
        remaining = None if options.steps is None else options.steps - feed.first_step
        while not control.is_stopping and feed.delivered != remaining:
            requested_at = time.monotonic()
            ready = feed.has_next
            try:
                batch = feed.next()
            except FeedClosedError:
                if control.is_stopping:
                    break
                raise
            received_at = time.monotonic()
            if received_at >= point_at:
                # Within the step, whose time it takes part of: a host has this time to spare.
                records.send(_point(feed, log.take(), connect_seconds, undelivered=1))
                point_at = received_at + POINT_INTERVAL_SECONDS
            _sleep_until(received_at + options.step_seconds - late)
            busy = log.add(requested_at, received_at, ready, batch)
            late = min(max(0.0, late + busy - options.step_seconds), _MAX_LATE_SECONDS)
            control.pause()
    if not control.is_killed:
        records.send(_point(feed, log.take(), connect_seconds))


def _point(feed: Feed, steps: Steps, connect_seconds: float, undelivered: int = 0) -> Point:
    """Returns a point; `undelivered` batches of the feed are not among the steps yet."""
    stats = feed.stats()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Point(
        steps=steps,
        at=time.monotonic(),
        state=feed.state(feed.delivered - undelivered),
        first_batch_seconds=connect_seconds + stats.first_batch_seconds,
        bytes=stats.bytes,
        reconnects=stats.reconnects,
        hedges=stats.hedges,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        max_memory_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        report=stats.report,
        servers=dict(stats.server_reports),
    )


def _sleep_until(at: float) -> None:
    if (seconds := at - time.monotonic()) > 0:
        time.sleep(seconds)
