"""Values read from files, and reloaded when the files change."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from infeed.shared.errors import InfeedError

log = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_INTERVAL_SECONDS = 1.0
"""Minimum time between checks of the files, which only reading the value triggers."""


class ReloadingValue(Generic[T]):
    """A value read from files. Invalid files raise an error at first; later the last value stays.
    Thread-safe."""

    def __init__(self, files: Sequence[str | os.PathLike[str]], make: Callable[[], T]) -> None:
        """`make` reads the files. Raises what it raises."""
        self._files = list(files)
        self._make = make
        # Before the read: a value may be newer than its stamps, never older.
        self._stamps = self._read_stamps()
        self._checked_at = time.monotonic()
        self._value = make()
        self._lock = threading.Lock()

    @property
    def value(self) -> T:
        with self._lock:
            now = time.monotonic()
            if now - self._checked_at >= CHECK_INTERVAL_SECONDS:
                self._checked_at = now
                self._reload_changed()
            return self._value

    def _reload_changed(self) -> None:
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._value = self._make()
        except InfeedError as error:
            log.error("%s; the previous content stays in force", error)
        except Exception:  # for example, a file is deleted while it is read
            log.exception("reloading failed; the previous content stays in force")
        else:
            log.info("reloaded: %s", ", ".join(map(str, self._files)))

    def _read_stamps(self) -> list[tuple[int, int, int] | None]:
        """Returns each file's modification time, size and inode; None if it does not exist."""
        stamps: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                status = Path(file).stat()
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                stamps.append(None)
        return stamps
