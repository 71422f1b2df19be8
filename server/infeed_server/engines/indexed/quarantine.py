"""Records of bad samples: the quarantine log, and the last ones in memory for the control plane."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from infeed.shared.errors import InfeedError
from infeed.shared.spec import OnError
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.pipeline.sample_key import format_key

log = logging.getLogger(__name__)

MAX_BAD_SAMPLES = 100
"""Samples that are kept; the quarantine log has all."""


class QuarantineLog:
    """The log of bad samples: one JSON object per line, each sample once."""

    def __init__(self, file: str, pipeline: str, action: OnError) -> None:
        self.file = Path(file)
        self._pipeline = pipeline
        self._action = action
        self._logged: set[str] = set()
        self._lock = threading.Lock()

    def add(self, error: InfeedError) -> bool:
        """Writes a line: time, pipeline, action, sample_id, file, offset, stage, reason, error.

        Returns False if the log cannot be written.
        """
        sample = error.metadata.get("sample_id", "")
        with self._lock:
            if sample in self._logged:
                return True
            self._logged.add(sample)
            line = {
                "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                "pipeline": self._pipeline,
                "action": self._action,
                **error.metadata,
                "reason": error.reason,
                "error": error.message,
            }
            log.warning(
                *("bad sample in %r (%s): %s", self._pipeline, self._action, error.message),
                extra={"fields": {"pipeline": self._pipeline, **error.metadata}},
            )
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
            except OSError as problem:
                # The log must not stop the training; the warning above has the content.
                log.error("cannot write the quarantine log %s: %s", self.file, problem.strerror)
                return False
        return True


class RecentBadSamples:
    """The last bad samples, each with how often it was requested. Thread-safe."""

    def __init__(self, action: OnError) -> None:
        self._action = action
        self._samples: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, error: InfeedError, task: BatchTask, slot: int) -> None:
        """Adds the sample of a slot of a failed batch, with the error that it caused.

        `position` is the slot's, and `epoch` is of the batch's first sample.
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
            return [dict(sample) for sample in reversed(self._samples.values())]


def _as_int(value: object) -> int | None:
    """Returns metadata as the number that it was: errors keep text."""
    return int(str(value)) if str(value).isdecimal() else None
