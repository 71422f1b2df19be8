"""The last bad samples of a pipeline, in memory, each once, for the control plane."""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime, timezone
from typing import Any

from infeed.shared.errors import InfeedError
from infeed.shared.spec import OnError
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.pipeline.sample_key import format_key

MAX_BAD_SAMPLES = 100
"""Samples that are kept; the quarantine log has all."""


class RecentBadSamples:
    """The last bad samples, each with how often it was requested. Thread-safe."""

    def __init__(self, action: OnError) -> None:
        self._action = action
        self._samples: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, error: InfeedError, task: BatchTask, slot: int) -> None:
        """Adds the sample of a slot of a failed batch, with the error that it caused.

        `position` is that of the slot, and `epoch` that of the batch's first sample.
        """
        metadata, sample = error.metadata, int(task.index[slot])
        with self._lock:
            count = self._samples.get(sample, {"count": 0})["count"] + 1
            self._samples[sample] = {
                "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                "sample_id": sample,
                "count": count,
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
            self._samples.move_to_end(sample)
            if len(self._samples) > MAX_BAD_SAMPLES:
                self._samples.popitem(last=False)

    def add_known(self, sample: int) -> None:
        """Counts a sample again that is known to be bad, and was not tried."""
        with self._lock:
            if sample in self._samples:
                self._samples[sample]["count"] += 1

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the samples for JSON, the last one first."""
        with self._lock:
            return [dict(each) for each in reversed(self._samples.values())]


def _as_int(value: object) -> int | None:
    """Returns metadata as the number that it was: errors keep text."""
    return int(str(value)) if str(value).isdecimal() else None
