"""Threads of a feed: a lock-free wake-up, and daemon threads that can be waited for."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress


class Wakeup:
    """Stays set until one wait has seen it.

    A signal handler's exception can leave the lock of a `threading.Event` locked, and every other
    thread then hangs. Here, setting and waiting are a single C call each. A wake-up lost with the
    exception does no harm: each thread checks its condition before waiting.
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


class BackgroundThread(threading.Thread):
    """Runs a function; never outlives the process. Call `join` only at the end: a signal handler's
    exception in it marks a running thread as ended."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._done = False
        self._end = Wakeup()

    @property
    def running(self) -> bool:
        """Whether the function was started and has not ended."""
        return self.ident is not None and not self._done

    def run(self) -> None:
        try:
            self._work()
        finally:
            self._done = True
            self._end.set()

    def wait_until(self, deadline: float) -> None:
        """Waits for the end, until a monotonic time at the latest."""
        if self is threading.current_thread():
            return
        while self.running and (left := deadline - time.monotonic()) > 0:
            self._end.wait(left)
            if self._done:
                self._end.set()  # for another thread that waits
        if self._done:
            self.join()
