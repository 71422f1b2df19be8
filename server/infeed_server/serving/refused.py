"""Refused batches: the last one of each pipeline whose data cannot be read."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timezone

from infeed.shared.errors import SourceError
from infeed_server.engines.monitor import Fault, fault_of

log = logging.getLogger(__name__)

_MAX_LOGGED_FILES = 100
"""Maximum files with a log line: more would flood the log if a folder is missing."""


@dataclass(frozen=True)
class RefusedBatch:
    """When a batch was refused, and why."""

    time: str
    fault: Fault
    file: str | None
    error: str


class RefusedBatches:
    """The last refused batch of each pipeline. Thread-safe."""

    def __init__(self) -> None:
        self.last: dict[str, RefusedBatch] = {}
        self._logged: set[tuple[str, str, str | None]] = set()

    def add(self, pipeline: str, error: SourceError) -> None:
        """Keeps the refused batch; logs each file once."""
        fault, file = fault_of(error), error.metadata.get("file")
        time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.last[pipeline] = RefusedBatch(time, fault, file, error.message)
        key = (pipeline, fault, file)
        if key not in self._logged and len(self._logged) < _MAX_LOGGED_FILES:
            self._logged.add(key)
            extra = {"fields": {"pipeline": pipeline, **error.metadata}}
            log.error("batches of %r are refused: %s", pipeline, error.message, extra=extra)
