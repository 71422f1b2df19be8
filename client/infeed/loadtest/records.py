"""Records: what a simulated trainer logs, and sends to the load test a few times a second."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from infeed.batch import Batch
from infeed.shared.report import ServerReport, TrainerReport
from infeed.shared.spec import Array

STEP = np.dtype(
    [
        ("requested_at", np.float64),
        ("wait_seconds", np.float64),
        ("busy_seconds", np.float64),
        ("start", np.int64),
        ("epoch", np.int64),
        ("samples", np.int64),
    ]
)
"""One step: when its batch was requested in monotonic seconds, which processes share, the wait for
it, the compute up to the next request, its first position, its epoch, and its filled slots."""


@dataclass(frozen=True)
class Point:
    """The steps since the last point, and the state after them. A resume starts from it."""

    steps: Array
    """A row of `STEP` for each, in order."""
    sample_ids: Array
    """int64 [steps, slots]."""
    at: float
    """Monotonic seconds."""
    state: Mapping[str, Any]
    """The cursor after these steps."""
    first_batch_seconds: float
    """Wait for the first batch since the trainer connected, with the time to connect."""
    bytes: int
    """Bytes on the wire since it connected, of the batches that it took."""
    reconnects: int
    cpu_seconds: float
    """Processor time of the trainer's process so far."""
    max_memory_bytes: int
    """Its largest resident memory so far."""
    report: TrainerReport
    servers: Mapping[str, ServerReport]
    """The last report of each server, by address."""
    lost: tuple[str, ...] = ()
    """Addresses of the servers that no longer serve it."""
    messages: tuple[tuple[float, str], ...] = ()
    """The warnings that the feed logged since the last point, with their monotonic times."""
    unanswered_at: float | None = None
    """When the trainer requested a batch that it did not get before it was stopped, monotonic
    seconds; None: it had all that it requested."""


Record = Point | str | None
"""A point; at the end the error of the trainer, or None if it made its steps or was stopped."""

_MAX_MESSAGES = 20
"""Warnings that a point carries: more would show more of a storm of them."""


class MessageLog(logging.Handler):
    """Keeps the warnings of a trainer, which would reach the terminal from all of them.

    Thread-safe, as every handler.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._messages: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append((time.monotonic(), record.getMessage()))

    def take(self) -> tuple[tuple[float, str], ...]:
        """Returns the first messages since the last call."""
        messages, self._messages = self._messages, []
        return tuple(messages[:_MAX_MESSAGES])


class StepLog:
    """The steps since the last point."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, ...]] = []
        self._ids: list[Array] = []

    def add(self, batch: Batch, requested_at: float, received_at: float) -> float:
        """Adds a step that ends now, and returns the length of its compute."""
        wait, busy = received_at - requested_at, time.monotonic() - received_at
        samples = int(batch.mask.sum())
        self._steps.append((requested_at, wait, busy, batch.start, batch.epoch, samples))
        self._ids.append(batch.sample_ids)
        return busy

    def take(self) -> tuple[Array, Array]:
        """Returns the steps and their sample ids, and forgets them."""
        steps, ids = np.array(self._steps, STEP), np.array(self._ids, np.int64)
        self._steps, self._ids = [], []
        return steps, ids
