"""Server pool: the coordinator behind a lock, and the threads that wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.server_state import Stream
from infeed.prefetch.threads import Wakeup

T = TypeVar("T")

_HEDGE_CHECK_INTERVAL_SECONDS = 0.25
"""Period at which an idle server checks whether the next step should be hedged."""


REPORT_DUE = -1
"""Instead of a step: a report to the server is due."""


@dataclass(frozen=True)
class _Wait:
    """How long a thread waits before it looks again, unless it is woken."""

    seconds: float


class ServerPool:
    """Makes a coordinator thread-safe. The trainer's thread takes no lock: it calls `wake` only."""

    def __init__(self, coordinator: Coordinator, consumed_steps: Callable[[], int]) -> None:
        """`consumed_steps` returns how many batches the trainer has taken."""
        self._coordinator = coordinator
        self._consumed_steps = consumed_steps
        self._lock = threading.Lock()
        self._waiting: tuple[Wakeup, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether no further batch is requested or delivered."""
        return self._coordinator.ended

    @property
    def closed(self) -> bool:
        """Whether it ended because the trainer closed the feed."""
        return self._coordinator.closed

    @contextmanager
    def locked(self) -> Iterator[Coordinator]:
        """Yields the coordinator, for one event; then wakes the threads that wait for one."""
        with self._lock:
            yield self._coordinator
        self.wake()

    def wake(self) -> None:
        """Makes every waiting thread look again. Callable from any thread; never blocks."""
        for wakeup in self._waiting:
            wakeup.set()

    def wait_for_turn(self, server: str) -> Stream | None:
        """Waits until the server may be connected to; None if the feed has ended."""

        def poll() -> Stream | _Wait | None:
            if self._coordinator.ended:
                return None
            delay = self._coordinator.connect_delay(server)
            return _Wait(delay) if delay else self._coordinator.start_stream(server)

        return self._wait(poll)

    def wait_for_step(self, stream: Stream) -> int | None:
        """Waits for the next step to request on the stream; None if the stream should end."""

        def poll() -> int | _Wait | None:
            if not self._coordinator.takes_requests(stream):
                return None
            if not (report_in := stream.seconds_to_report(time.monotonic())):
                return REPORT_DUE
            self._coordinator.on_consumed(self._consumed_steps())
            step = self._coordinator.next_request(stream)
            if step is None:
                return _Wait(min(report_in, _HEDGE_CHECK_INTERVAL_SECONDS))
            return step

        return self._wait(poll)

    def _wait(self, poll: Callable[[], T | _Wait]) -> T:
        """Calls `poll` under the lock until it returns something other than a wait."""
        wakeup: Wakeup | None = None
        try:
            while True:
                with self._lock:
                    result = poll()
                    if isinstance(result, _Wait) and wakeup is None:
                        wakeup = Wakeup()
                        self._waiting = (*self._waiting, wakeup)
                if not isinstance(result, _Wait):
                    return result
                assert wakeup is not None
                wakeup.wait(result.seconds)
        finally:
            if wakeup is not None:
                with self._lock:
                    self._waiting = tuple(other for other in self._waiting if other is not wakeup)
