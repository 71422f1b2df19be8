"""The quarantine: the log of bad samples, with the latest in memory for the control plane."""

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

_MAX_RECENT = 100
"""Maximum samples kept in memory; the log has all."""


class Quarantine:
    """The bad samples of a pipeline: one JSON object per line of a file, each sample once.
    Thread-safe."""

    def __init__(self, file: str, pipeline: str, action: OnError) -> None:
        self.file = Path(file)
        self._pipeline = pipeline
        self._action = action
        self._logged: set[int] = set()
        self._recent: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, error: InfeedError, task: BatchTask, slot: int) -> bool:
        """Adds the sample in a slot of a failed batch, with the error that it caused. `position` is
        that of the slot, and `epoch` that of the batch's first sample. Returns False if the log
        cannot be written."""
        sample, metadata = int(task.index[slot]), error.metadata
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        problem = {"reason": error.reason, "error": error.message}
        offset = str(metadata.get("offset"))  # errors keep text
        with self._lock:
            count = self._recent.pop(sample, {"count": 0})["count"] + 1
            self._recent[sample] = {
                "time": now,
                "sample_id": sample,
                "count": count,
                "key": format_key(task.key[slot]),
                "file": metadata.get("file"),
                "offset": int(offset) if offset.isdecimal() else None,
                "epoch": task.epoch,
                "position": task.request.start + slot,
                "stage": metadata.get("stage"),
                "action": self._action,
                **problem,
            }
            if len(self._recent) > _MAX_RECENT:
                self._recent.popitem(last=False)
            if sample in self._logged:
                return True
            self._logged.add(sample)
            fields = {"pipeline": self._pipeline, "action": self._action, **metadata}
            return self._write({"time": now, **fields, **problem}, fields)

    def count_again(self, sample: int) -> None:
        """Counts a known bad sample again, which was not tried."""
        with self._lock:
            if sample in self._recent:
                self._recent[sample]["count"] += 1

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the recent samples for JSON, newest first."""
        with self._lock:
            return [dict(sample) for sample in reversed(self._recent.values())]

    def _write(self, line: dict[str, Any], fields: dict[str, Any]) -> bool:
        log.warning(
            *("bad sample in %r (%s): %s", self._pipeline, self._action, line["error"]),
            extra={"fields": fields},
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
