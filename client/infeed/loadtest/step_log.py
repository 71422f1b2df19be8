"""Logs of a simulated trainer: its steps, and the warnings of its feed."""

from __future__ import annotations

import logging
import time

import numpy as np

from infeed.batch import Batch
from infeed.loadtest.records import Steps


class MessageLog(logging.Handler):
    """Keeps the warnings of a trainer, which would reach the terminal from all of them.

    Thread-safe, as every handler.
    """

    def __init__(self, rank: int | None = None) -> None:
        """With `rank`, only those of this rank: trainers in threads have one log."""
        super().__init__(logging.WARNING)
        self._rank = rank
        self._messages: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if self._rank is not None and getattr(record, "fields", {}).get("rank") != self._rank:
            return
        self._messages.append((time.monotonic(), record.getMessage()))

    def take(self) -> tuple[tuple[float, str], ...]:
        """Returns the messages since the last call, at most 20."""
        messages, self._messages = self._messages, []
        return tuple(messages[:20])


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
