"""Background thread: a daemon thread whose end an interruptible thread can wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from infeed.prefetch.wakeup import Wakeup


class BackgroundThread(threading.Thread):
    """Runs a function; none outlives the process."""

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
        """Waits for the end, until a monotonic time at the latest.

        An exception of a signal handler in `Thread.join` marks a running thread as ended. So that
        is called only when there is nothing to wait for but the last instructions of the thread.
        """
        if self is threading.current_thread():
            return
        while self.running and (left := deadline - time.monotonic()) > 0:
            self._end.wait(left)
            if self._done:
                self._end.set()  # for another thread that waits
        if self._done:
            self.join()
