"""Server pool: the coordinator behind a lock, and the threads that wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.server_state import Stream
from infeed.prefetch.threads import Wakeup

_HEDGE_CHECK_INTERVAL_SECONDS = 0.25
"""Period at which an idle server checks whether the next step should be hedged."""

REPORT_DUE = -1
"""Instead of a step: a report to the server is due."""


class ServerPool:
    """Makes a coordinator thread-safe. The trainer's thread takes no lock: it calls `wake` only.

    One thread of a server waits at a time: its reader for a turn, or the sender of its stream.
    """

    def __init__(self, coordinator: Coordinator, consumed_steps: Callable[[], int]) -> None:
        """`consumed_steps` returns how many batches the trainer has taken."""
        self._coordinator = coordinator
        self._consumed_steps = consumed_steps
        self._lock = threading.Lock()
        self._wakeups: dict[str, Wakeup] = {}

    @property
    def ended(self) -> bool:
        """Whether no further batch is requested or delivered."""
        return self._coordinator.ended

    @contextmanager
    def locked(self) -> Iterator[Coordinator]:
        """Yields the coordinator, for one event; then wakes the threads that wait for one."""
        with self._lock:
            yield self._coordinator
        self.wake()

    def wake(self) -> None:
        """Makes every waiting thread look again. Callable from any thread; never blocks."""
        for wakeup in tuple(self._wakeups.values()):
            wakeup.set()

    def wait_for_turn(self, server: str) -> Stream | None:
        """Waits until the server may be connected to; None if the feed has ended."""
        wakeup = self._wakeups.setdefault(server, Wakeup())
        while True:
            with self._lock:
                if self._coordinator.ended:
                    return None
                if not (delay := self._coordinator.connect_delay(server)):
                    return self._coordinator.start_stream(server)
            wakeup.wait(delay)

    def wait_for_step(self, stream: Stream) -> int | None:
        """Waits for the next step to request on the stream; None if the stream should end."""
        wakeup = self._wakeups.setdefault(stream.server, Wakeup())
        while True:
            with self._lock:
                if not self._coordinator.takes_requests(stream):
                    return None
                if not (report_in := stream.seconds_to_report(time.monotonic())):
                    return REPORT_DUE
                self._coordinator.on_consumed(self._consumed_steps())
                if (step := self._coordinator.next_request(stream)) is not None:
                    return step
            wakeup.wait(min(report_in, _HEDGE_CHECK_INTERVAL_SECONDS))
