"""Step scheduler: assigns steps to servers, reorders their batches, and hedges slow requests.

No threads and no I/O. Each step is delivered once and in order, whichever server sends it and
however often:

    new ──assign──► in flight ──on_received──► reorder buffer ──pop_next──► consumer
           ▲            │
           └─reassigned─┘

A straggler is a server that blocks the next step and sends nothing while other servers do (a
stopped process, a dead link). All its steps in flight time out: they are reassigned, and the
server gets no new step until it has sent them after all, or has reconnected.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from infeed.prefetch.server_speeds import ServerSpeeds

T = TypeVar("T")

_INITIAL_HEDGES = 4
_HEDGES_PER_STEP = 0.05
"""Bounds on the hedges of single steps: they are for rare delays, and more would only add load."""

_INITIAL_QUOTA = 4
"""Steps in flight at a server of unknown speed; without it, the first to connect gets all steps."""


class StepScheduler(Generic[T]):
    """Schedules the steps of one feed over its servers, by name. Not thread-safe."""

    def __init__(self, steps: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`steps` is None if the feed is endless or only the servers know the end."""
        self.hedges = 0
        """Steps that were requested again while an earlier request was in flight."""
        self.next_step = 0
        """The step that is delivered next."""
        self.single_server = True
        """Whether no server is expected but the first that is added."""
        self._steps = steps
        self._failed_step: int | None = None
        self._clock = clock
        self._next_new_step = 0
        self._reassigned: list[int] = []  # a heap
        self._in_flight: dict[str, dict[int, float]] = {}  # server → step → time of the request
        self._timed_out: dict[str, set[int]] = {}  # part of those in flight
        self._reorder_buffer: dict[int, T] = {}
        self._hedged_single_steps = 0
        self._speeds = ServerSpeeds()

    @property
    def complete(self) -> bool:
        """Whether every step was delivered."""
        return self._steps is not None and self.next_step >= self._steps

    @property
    def has_reassigned(self) -> bool:
        """Whether steps wait for another server than the one that was to send them."""
        return bool(self._reassigned)

    @property
    def servers(self) -> list[str]:
        """The servers that steps can be assigned to."""
        return list(self._in_flight)

    @property
    def hedge_delay(self) -> float:
        """Seconds after which the next step is requested from a second server."""
        return self._speeds.hedge_delay

    def add_server(self, server: str) -> None:
        """Makes a server available for steps."""
        self._in_flight.setdefault(server, {})
        self._timed_out.setdefault(server, set())

    def remove_server(self, server: str) -> None:
        """Reassigns the steps that only this server had in flight, and forgets its speed."""
        self._speeds.forget(server)
        timed_out = self._timed_out.pop(server, set())
        for step in self._in_flight.pop(server, {}):
            if step not in timed_out:
                self._reassign(step)

    def end_at(self, step: int) -> None:
        """Ends the feed before this step, if it did not end earlier."""
        self._steps = step if self._steps is None else min(step, self._steps)

    def fail(self, step: int, item: T) -> None:
        """Buffers an item in place of a step, whichever server was to send it.

        No later step is needed. But the feed is not complete: it must not end as if it were.
        """
        self._reorder_buffer[step] = item
        self._failed_step = step

    def assign(self, server: str, step_limit: int) -> int | None:
        """Returns the step to request from the server now; None if there is none for it yet."""
        if server in self._in_flight:
            return self._request(server, self._choose_step(server, step_limit))
        return None

    def probe(self, server: str, step_limit: int) -> int | None:
        """Returns the next step, to request it alone from a server that has failed before.

        It may be in flight elsewhere. So the answer shows whether this server can send it, and
        delays no other step.
        """
        step = self.next_step
        if self._in_flight.get(server, True) or step >= step_limit or not self._exists(step):
            return None
        if step in self._reassigned:
            self._reassigned.remove(step)
            heapq.heapify(self._reassigned)
        self._next_new_step = max(self._next_new_step, step + 1)
        return self._request(server, step)

    def on_received(self, server: str, step: int, item: T) -> bool:
        """Buffers a step that was in flight; returns False if it is not needed any more."""
        requested_at = self._in_flight[server].pop(step)
        self._timed_out[server].discard(step)
        needed = self.is_needed(step)
        self._speeds.measure(server, requested_at, self._clock(), needed=needed)
        if needed:
            self._reorder_buffer[step] = item
        return needed

    def is_needed(self, step: int) -> bool:
        """Returns whether the step exists and has not been received."""
        received = step < self.next_step or step in self._reorder_buffer
        return not received and self._exists(step)

    def pop_next(self) -> T | None:
        """Removes and returns the next step in order, if it was received."""
        if self.next_step not in self._reorder_buffer:
            return None
        self.next_step += 1
        return self._reorder_buffer.pop(self.next_step - 1)

    def clear(self) -> None:
        """Drops the buffered steps."""
        self._reorder_buffer.clear()

    def in_flight_count(self, server: str) -> int:
        """Returns the number of steps that were requested from the server and not received."""
        return len(self._in_flight.get(server, {}))

    def oldest_in_flight(self, server: str) -> int | None:
        """Returns the step in flight that was requested from the server first."""
        return next(iter(self._in_flight.get(server, ())), None)

    def blocking_server(self) -> tuple[str, float] | None:
        """Returns the server that the next step was requested from first, and how many seconds
        ago; None if it is not in flight. Callable from any thread."""
        next_step = self.next_step
        requests = [
            (requested_at, name)
            for name, steps in list(self._in_flight.items())
            if (requested_at := steps.get(next_step)) is not None
        ]
        if not requests:
            return None
        requested_at, name = min(requests)
        return name, self._clock() - requested_at

    def _request(self, server: str, step: int | None) -> int | None:
        if step is not None:
            self._in_flight[server][step] = self._clock()
        return step

    def _choose_step(self, server: str, step_limit: int) -> int | None:
        self._detect_stragglers()
        if self._timed_out[server]:
            return None
        if self.in_flight_count(server) < self._quota(server, step_limit):
            while self._reassigned:
                step = heapq.heappop(self._reassigned)
                if self.is_needed(step):
                    self.hedges += any(step in steps for steps in self._timed_out.values())
                    return step
            if self._next_new_step < step_limit and self._exists(self._next_new_step):
                self._next_new_step += 1
                return self._next_new_step - 1
        return self.next_step if self._should_hedge(server) else None

    def _detect_stragglers(self) -> None:
        """Times out the steps of each straggler that has the next step in flight."""
        for server, in_flight in self._in_flight.items():
            timed_out = self._timed_out[server]
            requested_at = in_flight.get(self.next_step)
            if requested_at is None or self.next_step in timed_out:
                continue
            if self._speeds.is_straggler(server, requested_at, self._clock()):
                newly = in_flight.keys() - timed_out
                timed_out |= newly
                for step in newly:
                    self._reassign(step)

    def _should_hedge(self, server: str) -> bool:
        """Returns whether to request the next step from this idle server too, and counts it."""
        if self.in_flight_count(server) or self._request_count(self.next_step) != 1:
            return False
        if self._hedged_single_steps >= _INITIAL_HEDGES + _HEDGES_PER_STEP * self.next_step:
            return False
        blocking = self.blocking_server()
        if blocking is None or blocking[1] < self.hedge_delay:
            return False
        self._hedged_single_steps += 1
        self.hedges += 1
        return True

    def _reassign(self, step: int) -> None:
        """Queues the step again if no request for it is left."""
        if not self._request_count(step) and self.is_needed(step):
            heapq.heappush(self._reassigned, step)

    def _request_count(self, step: int) -> int:
        """Returns the requests for a step that are in flight and not timed out."""
        return sum(
            step in steps and step not in self._timed_out[server]
            for server, steps in self._in_flight.items()
        )

    def _exists(self, step: int) -> bool:
        if self._failed_step is not None and step > self._failed_step:
            return False
        return self._steps is None or step < self._steps

    def _quota(self, server: str, step_limit: int) -> int:
        """Returns the steps that the server may have in flight."""
        if not self._speeds.knows(server) and not self.single_server:
            return _INITIAL_QUOTA
        others = [name for name in self._in_flight if name != server and not self._timed_out[name]]
        free = step_limit - self.next_step
        return max(2, math.ceil(free * self._speeds.share(server, others))) if others else free
