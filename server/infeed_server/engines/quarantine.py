"""The log of bad samples: one JSON object a line, each sample once."""

from __future__ import annotations

import json
import logging
import threading
from datetime import datetime, timezone
from pathlib import Path

from infeed.errors import InfeedError
from infeed.spec import OnError

log = logging.getLogger(__name__)


class Quarantine:
    """Appends to a file; remembers which samples it holds, so that epochs do not repeat them."""

    def __init__(self, file: str, pipeline: str, action: OnError) -> None:
        self.file = Path(file)
        self._pipeline = pipeline
        self._action = action
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def add(self, error: InfeedError) -> None:
        """Writes a line: time, pipeline, action, sample_id, file, offset, stage, reason, error."""
        sample = error.metadata.get("sample_id", "")
        with self._lock:
            if sample in self._seen:
                return
            self._seen.add(sample)
            line = {
                "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
                "pipeline": self._pipeline,
                "action": self._action,
                **error.metadata,
                "reason": error.reason,
                "error": error.message,
            }
            log.warning("bad sample in %r (%s): %s", self._pipeline, self._action, error.message)
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line) + "\n")
            except OSError as problem:
                # The log must not take the training down with it; the warning above stands.
                log.error("cannot write the quarantine log %s: %s", self.file, problem.strerror)
