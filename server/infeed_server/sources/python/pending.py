"""Requests whose answer is waited for, with a warning when the user's code takes long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from typing import Any

log = logging.getLogger(__name__)

_SLOW_SECONDS = 60.0
"""Time after which a request is logged. Shorter: also requests that are only slow."""

_REPEAT_SECONDS = 600.0
"""Time until it is logged again."""

_CHECK_INTERVAL_SECONDS = 10.0


class PendingRequest:
    """A request for some samples; `begin` is for the thread that begins it, `wait` for another."""

    def __init__(self, subject: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._subject = subject
        self._clock = clock
        self._begun: tuple[float, int] | None = None

    def begin(self, pid: int) -> None:
        """Notes the process that works on it: not all requests are begun at once."""
        self._begun = (self._clock(), pid)

    def wait(self, answer: Future[Any]) -> Any:
        """Returns the answer, or raises its error. There is no limit on the time."""
        next_log = 0.0
        # Not by its own timeout: the error of the user's code may be a TimeoutError.
        while not futures.wait([answer], _CHECK_INTERVAL_SECONDS).done:
            if self._begun is None:
                continue
            now = self._clock()
            begun, pid = self._begun
            if now - begun >= _SLOW_SECONDS and now >= next_log:
                next_log = now + _REPEAT_SECONDS
                log.warning(
                    "%s: process %d has worked on it for %.0f s and has not returned; batches wait",
                    *(self._subject, pid, now - begun),
                )
        return answer.result()
