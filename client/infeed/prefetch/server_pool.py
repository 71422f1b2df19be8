"""Server pool: the lock shared by a feed's readers, and their waits for its coordinator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.stream import Stream
from infeed.prefetch.threads import Wakeup

_CHECK_INTERVAL_SECONDS = 0.25
"""Period at which an idle server looks for stragglers."""

REPORT_DUE = -1
"""In place of a step: a report to the server is due."""

BLOCKS_DUE = -2
"""In place of a step: blocks of shared memory should be returned."""


class ServerPool:
    """Makes a coordinator thread-safe. The trainer's thread takes no lock: it only calls `wake`."""

    def __init__(self, coordinator: Coordinator, consumed_steps: Callable[[], int]) -> None:
        """`consumed_steps` returns how many batches the trainer has taken."""
        self._coordinator = coordinator
        self._consumed_steps = consumed_steps
        self._lock = threading.Lock()
        self._wakeups: dict[str, Wakeup] = {}
        """By the name of a stream."""

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
        """Makes every waiting thread check again. Callable from any thread; never blocks."""
        for wakeup in list(self._wakeups.values()):  # a list: atomic on free-threaded Python, too
            wakeup.set()

    def wait_for_turn(self, server: str, number: int = 0) -> Stream | None:
        """Waits until the server may be connected to; None if the feed has ended."""
        wakeup = self._wakeups.setdefault(Stream(server, number).name, Wakeup())
        while True:
            with self._lock:
                if self._coordinator.ended:
                    return None
                if not (delay := self._coordinator.connect_delay(server)):
                    return self._coordinator.start_stream(server, number)
            wakeup.wait(delay)

    def wait_for_step(self, stream: Stream) -> int | None:
        """Waits for the next step to request on the stream; None if the stream should end."""
        wakeup = self._wakeups.setdefault(stream.name, Wakeup())
        while True:
            with self._lock:
                if not self._coordinator.takes_requests(stream):
                    return None
                now = time.monotonic()
                if not (report_in := self._coordinator.seconds_to_report(stream, now)):
                    return REPORT_DUE
                self._coordinator.on_consumed(self._consumed_steps())
                if (step := self._coordinator.next_request(stream)) is not None:
                    return step
                if stream.returns_blocks(now):
                    return BLOCKS_DUE
            wakeup.wait(min(report_in, _CHECK_INTERVAL_SECONDS))
