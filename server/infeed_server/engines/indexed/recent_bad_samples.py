"""The last bad samples of a pipeline, in memory, for the control plane."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timezone
from typing import Any

from infeed.errors import InfeedError
from infeed.spec import OnError
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.pipeline.sample_key import format_key

MAX_BAD_SAMPLES = 100
"""Samples that are kept; the quarantine log has all."""


class RecentBadSamples:
    """The last bad samples. One thread adds, any thread reads."""

    def __init__(self, action: OnError) -> None:
        self._action = action
        self._samples: deque[dict[str, Any]] = deque(maxlen=MAX_BAD_SAMPLES)

    def add(self, error: InfeedError, task: BatchTask, slot: int) -> None:
        """Adds the sample of a slot of a failed batch, with the error that it caused.

        `position` is that of the slot, and `epoch` that of the batch's first sample.
        """
        metadata = error.metadata
        self._samples.append(
            {
                "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                "sample_id": int(task.index[slot]),
                "key": format_key(task.key[slot]),
                "file": metadata.get("file"),
                "offset": _as_int(metadata.get("offset")),
                "epoch": task.epoch,
                "position": task.request.start + slot,
                "stage": metadata.get("stage"),
                "action": self._action,
                "reason": error.reason,
                "error": error.message,
            }
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the samples for JSON, the last one first."""
        return list(self._samples)[::-1]


def _as_int(value: object) -> int | None:
    """Returns metadata as the number that it was: errors keep text."""
    return int(str(value)) if str(value).isdecimal() else None
