"""What is made of files, and made anew when they change."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from infeed.errors import InfeedError

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 1.0
"""How often files are looked at, at most, and only when somebody asks."""

_Stamp = tuple[int, int, int] | None


class Watched(Generic[T]):
    """Files that are wrong at first are an error; later, what was good stays in force.

    Thread-safe.
    """

    def __init__(self, files: Sequence[str | os.PathLike[str]], make: Callable[[], T]) -> None:
        """`make` reads the files. Raises what it raises."""
        self._files = list(files)
        self._make = make
        self._stamps = self._look()
        self._looked_at = time.monotonic()
        self._value = make()
        self._lock = threading.Lock()

    @property
    def value(self) -> T:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                self._refresh()
            return self._value

    def _refresh(self) -> None:
        stamps = self._look()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._value = self._make()
        except InfeedError as error:
            log.error("%s; what was read before stays in force", error)
        except Exception:  # such as of a file that goes while it is read
            log.exception("what was read before stays in force")
        else:
            log.info("read again: %s", ", ".join(map(str, self._files)))

    def _look(self) -> list[_Stamp]:
        return [_stamp(file) for file in self._files]


def _stamp(file: str | os.PathLike[str]) -> _Stamp:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
