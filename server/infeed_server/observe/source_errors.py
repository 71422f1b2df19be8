"""Source errors: batches that were refused because the data changed, is damaged or away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from infeed.shared.errors import SourceError
from infeed_server.engines.monitor import fault_of

log = logging.getLogger(__name__)

_MAX_LOGGED_FILES = 100
"""Files of a pipeline with a line in the log. More would flood it where a whole folder is away;
the metric counts all."""


class SourceErrors:
    """The last source error of each pipeline, each file logged once. Thread-safe."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, Any]] = {}
        self._logged: dict[str, set[tuple[str, str]]] = {}
        self._subscribers: list[Callable[[str, SourceError], None]] = []
        self._lock = threading.Lock()

    def subscribe(self, subscriber: Callable[[str, SourceError], None]) -> None:
        """Calls the function with the pipeline and the error of each refused batch."""
        self._subscribers.append(subscriber)

    def add(self, pipeline: str, error: SourceError) -> None:
        """Notes the error of a refused batch."""
        file = error.metadata.get("file")
        with self._lock:
            self._last[pipeline] = {
                "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                "fault": fault_of(error),
                "file": file,
                "error": error.message,
            }
            logged = self._logged.setdefault(pipeline, set())
            key = (fault_of(error), file or "")
            is_new = key not in logged and len(logged) < _MAX_LOGGED_FILES
            if is_new:
                logged.add(key)
        if is_new:
            log.error(
                *("batches of %r are refused: %s", pipeline, error.message),
                extra={"fields": {"pipeline": pipeline, **error.metadata}},
            )
        for subscriber in self._subscribers:
            subscriber(pipeline, error)

    def last(self, pipeline: str) -> dict[str, Any] | None:
        """Returns the last error for JSON: time, fault, file and error; None without one."""
        with self._lock:
            return self._last.get(pipeline)
