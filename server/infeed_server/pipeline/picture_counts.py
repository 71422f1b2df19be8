"""Counts of a pipeline's pictures, by what became of them in the native decoder."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

DECODED = "decoded"
"""Status of a picture that the native decoder makes."""


class PictureCounts:
    """Pictures by status: `DECODED`, or why they are left to TensorFlow. Thread-safe. Its text is a
    line with the native decoder's share."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, statuses: Iterable[str]) -> None:
        with self._lock:
            self._counts.update(statuses)

    def by_status(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def by_decoder(self) -> dict[str, int]:
        """Returns the pictures that were decoded, by `native` or `tensorflow`."""
        counts = self.by_status()
        native = counts.pop(DECODED, 0)
        return {"native": native, "tensorflow": sum(counts.values())}

    def __str__(self) -> str:
        counts = Counter(self.by_status())
        if not (total := counts.total()):
            return "infeed-jpeg decodes the JPEGs"
        text = f"infeed-jpeg decodes {counts.pop(DECODED, 0) / total:.1%} of {total} pictures"
        others = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        return f"{text}, TensorFlow the others: {others}" if others else text
