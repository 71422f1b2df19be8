"""Logs of a simulated trainer: its steps, and the warnings of its feed."""

from __future__ import annotations

import logging
import time

import numpy as np

from infeed.batch import Batch
from infeed.loadtest.records import STEP
from infeed.shared.spec import Array

_MAX_MESSAGES = 20
"""Warnings that a point carries: more would show more of a storm of them."""


class MessageLog(logging.Handler):
    """Keeps the warnings of a trainer, which would reach the terminal from all of them.

    Thread-safe, as every handler.
    """

    def __init__(self, rank: int | None = None) -> None:
        """With `rank`, only the warnings of this rank: trainers in threads have one log."""
        super().__init__(logging.WARNING)
        self._rank = rank
        self._messages: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self._rank is not None and getattr(record, "fields", {}).get("rank") != self._rank:
            return
        self._messages.append((time.monotonic(), record.getMessage()))

    def take(self) -> tuple[tuple[float, str], ...]:
        """Returns the first messages since the last call."""
        messages, self._messages = self._messages, []
        return tuple(messages[:_MAX_MESSAGES])


class StepLog:
    """The steps since the last point."""

    def __init__(self) -> None:
        self._steps: list[tuple[float | bool, ...]] = []
        self._ids: list[Array] = []

    def add(self, batch: Batch, requested_at: float, received_at: float, ready: bool) -> float:
        """Adds a step that ends now, and returns the length of its compute."""
        wait, busy = received_at - requested_at, time.monotonic() - received_at
        samples = int(batch.mask.sum())
        self._steps.append((requested_at, wait, busy, ready, batch.start, batch.epoch, samples))
        self._ids.append(batch.sample_ids)
        return busy

    def take(self) -> tuple[Array, Array]:
        """Returns the steps and their sample ids, and forgets them."""
        steps, ids = np.array(self._steps, STEP), np.array(self._ids, np.int64)
        self._steps, self._ids = [], []
        return steps, ids
