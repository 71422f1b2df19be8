"""Step scheduler: assigns steps to servers, reorders their batches, and repeats late requests.

No threads and no I/O. Each step is delivered once and in order, whichever server sends it and
however often:

    new ──assign──► in flight ──on_received──► reorder buffer ──pop_next──► consumer
           ▲            │
           └─reassigned─┘

A straggler is a server that blocks the next step and sends nothing, while others send or have
nothing to do (a stopped process, a dead link); or that takes so much longer than one with nothing
to do that the trainer would wait for it (a slow link). All its steps in flight time out: they are
reassigned, and the server gets no new step until it has sent them after all, or has reconnected.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from infeed.prefetch.server_record import ServerRecord, ewma

T = TypeVar("T")

MIN_STRAGGLER_SECONDS = 1.0
"""Minimum seconds of silence before a server is a straggler: fewer repeat merely late steps."""

_LATE_FACTOR = 4.0
"""Multiple of the usual time from which a server is a straggler: less repeats more steps."""

_INITIAL_QUOTA = 4
"""Initial steps in flight at one of several servers, whose speed is unknown. Each batch adds one,
up to its share: given the whole share at once, one server would have all the next steps."""


class StepScheduler(Generic[T]):
    """Schedules the steps of one feed over its servers, by name. Not thread-safe."""

    def __init__(self, steps: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`steps` is None if the feed is endless or only the servers know its end."""
        self.hedges = 0
        """Steps requested again while an earlier request was in flight."""
        self.next_step = 0
        """The step to deliver next."""
        self.single_server = True
        """Whether only one server is expected, the first to be added."""
        self.servers: dict[str, ServerRecord] = {}
        """The servers that steps can be assigned to."""
        self._steps = steps
        self._failed_step: int | None = None
        self._clock = clock
        self._next_new_step = 0
        self._reassigned: list[int] = []  # a heap
        self._reorder_buffer: dict[int, T] = {}
        self._mean_latency = 0.0

    @property
    def complete(self) -> bool:
        """Whether every step was delivered."""
        return self._steps is not None and self.next_step >= self._steps

    @property
    def has_reassigned(self) -> bool:
        """Whether reassigned steps wait for another server."""
        return bool(self._reassigned)

    @property
    def late_seconds(self) -> float:
        """Seconds after the request from which the answer to a step is late."""
        return max(MIN_STRAGGLER_SECONDS, _LATE_FACTOR * self._mean_latency)

    def add_server(self, server: str) -> None:
        """Makes a server available for steps."""
        self.servers.setdefault(server, ServerRecord())

    def remove_server(self, server: str) -> None:
        """Reassigns the steps that only this server had in flight, and forgets its speed."""
        removed = self.servers.pop(server, ServerRecord())
        for step in removed.in_flight.keys() - removed.timed_out:
            self._reassign(step)

    def end_at(self, step: int) -> None:
        """Ends the feed before this step, if it did not end earlier."""
        self._steps = step if self._steps is None else min(step, self._steps)

    def fail(self, step: int, item: T) -> None:
        """Buffers an item in place of a step. No later step is needed, but the feed must not seem
        complete."""
        self._reorder_buffer[step] = item
        self._failed_step = step

    def assign(self, server: str, step_limit: int, *, is_urgent: bool = False) -> int | None:
        """Returns the step to request from the server now; None if there is none yet. `is_urgent`:
        the trainer is about to wait, so do not wait for a slow server."""
        if server in self.servers:
            return self._request(server, self._choose_step(server, step_limit, is_urgent))
        return None

    def probe(self, server: str, step_limit: int) -> int | None:
        """Returns the next step, the only one to request from a server that failed before. It may
        be in flight elsewhere too, so the answer delays no other step."""
        step, known = self.next_step, self.servers.get(server)
        if known is None or known.in_flight or step >= step_limit or not self._exists(step):
            return None
        if step in self._reassigned:
            self._reassigned.remove(step)
            heapq.heapify(self._reassigned)
        self._next_new_step = max(self._next_new_step, step + 1)
        return self._request(server, step)

    def on_received(self, server: str, step: int, item: T) -> bool:
        """Buffers a step that was in flight; returns False if it is no longer needed."""
        sender, now = self.servers[server], self._clock()
        requested_at = sender.in_flight.pop(step)
        sender.timed_out.discard(step)
        interval = max(1e-6, now - max(requested_at, sender.received_at))
        if requested_at >= sender.received_at:
            sender.lone_latency = now - requested_at
        last = sender.intervals[-1] if sender.intervals else interval
        bound = max(_LATE_FACTOR * sender.usual_interval, last)
        sender.usual_interval = ewma(sender.usual_interval, min(interval, bound))
        sender.interval = ewma(sender.interval, interval)
        sender.intervals.append(interval)
        sender.received, sender.received_at = sender.received + 1, now
        if not self.is_needed(step):
            return False  # the latency of a duplicate is not typical
        self._mean_latency = ewma(self._mean_latency, now - requested_at)
        self._reorder_buffer[step] = item
        return True

    def is_needed(self, step: int) -> bool:
        """Returns whether the step exists and has not been received."""
        received = step < self.next_step or step in self._reorder_buffer
        return not received and self._exists(step)

    def pop_next(self) -> T | None:
        """Removes and returns the next step in order, if received."""
        if self.next_step not in self._reorder_buffer:
            return None
        self.next_step += 1
        return self._reorder_buffer.pop(self.next_step - 1)

    def clear(self) -> None:
        """Drops the buffered steps."""
        self._reorder_buffer.clear()

    def oldest_in_flight(self, server: str) -> int | None:
        """Returns the server's oldest step in flight."""
        return next(iter(self.servers.get(server, ServerRecord()).in_flight), None)

    def blocking_server(self) -> tuple[str, float] | None:
        """Returns the server first asked for the next step, and how many seconds ago; None if the
        step is not in flight. Callable from any thread."""
        requests = [
            (requested_at, name)
            for name, server in list(self.servers.items())
            if (requested_at := server.in_flight.get(self.next_step)) is not None
        ]
        if not requests:
            return None
        requested_at, name = min(requests)
        return name, self._clock() - requested_at

    def batch_rates(self) -> dict[str, float]:
        """Returns the batches per second of each server. Callable from any thread."""
        now = self._clock()
        return {name: server.rate(now) for name, server in sorted(self.servers.copy().items())}

    def _request(self, server: str, step: int | None) -> int | None:
        if step is not None:
            self.servers[server].in_flight[step] = self._clock()
        return step

    def _choose_step(self, name: str, step_limit: int, is_urgent: bool) -> int | None:
        server = self.servers[name]
        self._detect_stragglers(None if server.in_flight else server, is_urgent)
        if server.timed_out or len(server.in_flight) >= self._quota(server, step_limit):
            return None
        while self._reassigned:
            step = heapq.heappop(self._reassigned)
            if self.is_needed(step):
                self.hedges += any(step in other.timed_out for other in self.servers.values())
                return step
        if self._next_new_step < step_limit and self._exists(self._next_new_step):
            self._next_new_step += 1
            return self._next_new_step - 1
        return None

    def _detect_stragglers(self, idle: ServerRecord | None, is_urgent: bool) -> None:
        """Times out the steps of every straggler with the next step in flight."""
        for server in self.servers.values():
            if server.waits_for(self.next_step) and self._is_straggler(server, idle, is_urgent):
                newly = server.in_flight.keys() - server.timed_out
                server.timed_out |= newly
                for step in newly:
                    self._reassign(step)

    def _is_straggler(
        self, server: ServerRecord, idle: ServerRecord | None, is_urgent: bool
    ) -> bool:
        """Returns whether the server's silence is unusual for its interval between batches (the
        latency grows with the number in flight), and the others are not as busy and silent; or
        whether an idle server would answer in a fraction of the usual time that is left."""
        since = max(server.in_flight[self.next_step], server.received_at)
        silence = self._clock() - since
        answer_in = max(_LATE_FACTOR * idle.interval, idle.lone_latency) if idle else 0.0
        if is_urgent and answer_in and server.usual_interval - silence > answer_in:
            return True
        usual = server.interval or max(other.interval for other in self.servers.values())
        last = max(other.received_at for other in self.servers.values())
        late = silence >= max(MIN_STRAGGLER_SECONDS, _LATE_FACTOR * usual)
        return late and (idle is not None or last > since)

    def _reassign(self, step: int) -> None:
        """Queues the step again unless a server is still expected to send it."""
        is_awaited = any(server.waits_for(step) for server in self.servers.values())
        if not is_awaited and self.is_needed(step):
            heapq.heappush(self._reassigned, step)

    def _exists(self, step: int) -> bool:
        if self._failed_step is not None and step > self._failed_step:
            return False
        return self._steps is None or step < self._steps

    def _quota(self, server: ServerRecord, step_limit: int) -> int:
        """Returns the steps that the server may have in flight, by its share of the total speed."""
        others = [
            item for item in self.servers.values() if item is not server and not item.timed_out
        ]
        free = step_limit - self.next_step
        initial = _INITIAL_QUOTA + server.received
        if not others:
            return free if self.single_server else min(free, initial)
        known = [item.interval for item in (server, *others) if item.interval]
        mean = sum(known) / len(known) if known else 1.0  # an unknown speed counts as the mean
        speeds = [1 / (other.interval or mean) for other in (server, *others)]
        return min(initial, max(2, round(free * speeds[0] / sum(speeds))))
