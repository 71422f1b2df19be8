"""Wakeup: a signal to one waiting thread, without a lock that an interrupt could leave locked."""

from __future__ import annotations

import math
import threading
from contextlib import suppress


class Wakeup:
    """Stays set until one wait has seen it.

    `threading.Event` and `Condition` hold a lock in Python code. An exception of a signal handler
    can leave it locked there, and then every other thread hangs. Here, setting and waiting are one
    call of C each: the exception comes before or after it. A signal that was seen and then lost
    with the exception does no harm, because each thread checks its condition before it waits.
    """

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wakes the thread that waits, or makes the next wait return at once. Never blocks."""
        if self._unset.locked():
            with suppress(RuntimeError):  # another thread has set it in between
                self._unset.release()

    def wait(self, timeout: float = math.inf) -> bool:
        """Waits until the signal is set, and unsets it; returns False after `timeout` seconds."""
        return self._unset.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
