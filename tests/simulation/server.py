"""Simulated server with its link, and the reader that the feed has for it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from tests.simulation.world import World

from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.server_state import STEP_ERRORS
from infeed.prefetch.stream import MAX_DRAIN_SILENCE_SECONDS, Stream
from infeed.shared.errors import InfeedError, ServerUnavailableError
from infeed.wire.assembler import ReceivedBatch

KEEPALIVE_SECONDS = 15.0
"""Time after which the client notices that a connection is dead."""

_HEDGE_CHECK_INTERVAL_SECONDS = 0.5


class Connection:
    """One connection and its stream: the requests that the server has, and has not answered."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.requests: deque[int] = deque()
        self.answering = False
        self.silent = False
        """Whether the link has broken without either end noticing."""
        self.connected = self.requests_end = False
        self.stuck = False
        """Whether the server answers nothing on it, but does not end it either."""
        self.hedge_check = False
        """Whether the time of the next check for a hedge is set."""


class SimulatedServer:
    """A server, and in place of the client's threads for it the same calls of the coordinator."""

    def __init__(
        self,
        name: str,
        world: World,
        coordinator: Coordinator,
        make_batch: Callable[[int], ReceivedBatch],
        consumed_steps: Callable[[], int],
        wake_all: Callable[[], None],
    ) -> None:
        self.name = name
        self.world = world
        self.coordinator = coordinator
        self.service_seconds = 0.01 + 0.5 * world.random.random()
        self.link_seconds = 0.001 + 0.02 * world.random.random()
        self.down_until = self.frozen_until = self.sick_until = 0.0
        self.sickness: InfeedError = ServerUnavailableError("-")
        self.sick_at_open = False
        self.healthy_since = world.now
        self.failed: set[int | None] = set()
        """The step that the last answer has failed; None in place of a stream. Empty: a batch."""
        self.failed_as_everywhere: set[int] = set()
        """Steps that it has failed with an error that other servers usually have as well."""
        self.connection: Connection | None = None
        self._make_batch = make_batch
        self._consumed_steps = consumed_steps
        self._wake_all = wake_all
        self._woken = False

    # Faults.

    def disturb(self, until: float) -> None:
        """Counts the server as healthy again from that time on."""
        self.healthy_since = max(self.healthy_since, until)

    def kill(self, seconds: float, *, silently: bool = False) -> None:
        """Ends the process, or its whole host, and starts it again."""
        self.down_until = max(self.down_until, self.world.now + seconds)
        self.disturb(self.down_until)
        self.cut(silently=silently)

    def cut(self, *, silently: bool = False) -> None:
        """Breaks the connection; the client notices at once, or by its keepalive."""
        connection = self.connection
        if connection is None:
            return
        connection.silent = True
        delay = KEEPALIVE_SECONDS if silently else self.link_seconds
        self.disturb(self.world.now + delay)
        error = ServerUnavailableError(f"{self.name}: connection reset")
        self.world.after(delay, lambda: self._end(connection, error))

    def hang(self, seconds: float) -> None:
        """Stops sending batches, but not answering pings: its disk hangs, for example."""
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.disturb(self.frozen_until)

    def freeze(self, seconds: float) -> None:
        """Stops the process; its host still accepts connections."""
        self.hang(seconds)
        connection = self.connection
        if connection is not None and seconds > KEEPALIVE_SECONDS:
            error = ServerUnavailableError(f"{self.name}: no answer to pings")
            self.world.after(KEEPALIVE_SECONDS, lambda: self._end(connection, error))

    def fall_sick(self, seconds: float, error: InfeedError, *, at_open: bool) -> None:
        """Answers with an error, each request or each new stream."""
        self.sick_until, self.sickness, self.sick_at_open = self.world.now + seconds, error, at_open
        self.disturb(self.sick_until)

    def drain(self, seconds: float) -> None:
        """Announces a restart: answers what it has, and then ends."""
        if self.connection is not None:
            self.coordinator.on_draining(self.connection.stream)
            self._wake_all()
        self.world.after(self.service_seconds * 4, lambda: self.kill(seconds))
        self.disturb(self.world.now + seconds + 1.0)

    def drain_without_end(self) -> None:
        """Announces a restart, and goes away behind a proxy that keeps the stream open."""
        if self.connection is not None and self.connection.connected:
            self.connection.stuck = True
            self.coordinator.on_draining(self.connection.stream)
            self.disturb(self.world.now + MAX_DRAIN_SILENCE_SECONDS + 1.0)
            self._wake_all()

    # The reader, as in `ServerReader` and `ServerPool`.

    def cancel_overdue(self) -> None:
        """Ends a stream whose announced end does not come."""
        connection = self.connection
        if connection is not None and self.coordinator.is_overdue(connection.stream):
            self._end(connection, ServerUnavailableError(f"{self.name}: no end of the stream"))

    def wake(self) -> None:
        """Wakes the threads of this server."""
        if not self._woken:
            self._woken = True
            self.world.wake(self._run)

    def _run(self) -> None:
        self._woken = False
        if self.connection is None:
            self._look_for_turn()
        else:
            self._request(self.connection)

    def _look_for_turn(self) -> None:
        if self.connection is not None or self.coordinator.ended:
            return
        delay = self.coordinator.connect_delay(self.name)
        if not delay:
            self.connection = Connection(self.coordinator.start_stream(self.name))
            connection = self.connection
            self.world.after(self.link_seconds, lambda: self._connect(connection))
        elif delay < math.inf:
            self.world.after(delay, self._look_for_turn)

    def _connect(self, connection: Connection) -> None:
        if connection is not self.connection:
            return
        if self.world.now < self.down_until:
            self._end(connection, ServerUnavailableError(f"{self.name}: connection refused"))
            return
        connection.connected = True
        self.coordinator.on_connected(connection.stream)
        self.world.after(self.link_seconds, lambda: self._accept(connection))
        if self.frozen_until > self.world.now + KEEPALIVE_SECONDS:
            error = ServerUnavailableError(f"{self.name}: no answer to pings")
            self.world.after(KEEPALIVE_SECONDS, lambda: self._end(connection, error))
        self._wake_all()

    def _accept(self, connection: Connection) -> None:
        if connection.silent or connection is not self.connection:
            return
        if self.world.now < self.frozen_until:
            self.world.after(self.frozen_until - self.world.now, lambda: self._accept(connection))
        elif self.world.now < self.sick_until and self.sick_at_open:
            self.failed = {None}
            self._end(connection, self.sickness)
        else:
            self.coordinator.on_stream_accepted(connection.stream)
            self._wake_all()
            self._answer(connection)

    def _request(self, connection: Connection) -> None:
        """Sends the requests that the stream may have now."""
        if connection is not self.connection or not connection.connected:
            return
        coordinator, stream = self.coordinator, connection.stream
        coordinator.on_consumed(self._consumed_steps())
        while (step := coordinator.next_request(stream)) is not None:
            connection.requests.append(step)
        if not coordinator.takes_requests(stream):
            connection.requests_end = True
        elif not connection.hedge_check:
            connection.hedge_check = True
            self.world.after(_HEDGE_CHECK_INTERVAL_SECONDS, lambda: self._check_hedge(connection))
        if (connection.requests and not connection.answering) or connection.requests_end:
            self.world.after(self.link_seconds, lambda: self._answer(connection))

    def _check_hedge(self, connection: Connection) -> None:
        connection.hedge_check = False
        self._request(connection)

    def _answer(self, connection: Connection) -> None:
        """Begins to answer the next request."""
        if connection.answering or connection is not self.connection or connection.silent:
            return
        if connection.stuck:
            return
        if not connection.stream.accepted:
            return
        if connection.requests:
            connection.answering = True
            seconds = self.service_seconds * (0.5 + self.world.random.random())
            self.world.after(seconds, lambda: self._send(connection))
        elif connection.requests_end:
            self._end(connection, ServerUnavailableError(f"{self.name} ended the stream"))

    def _send(self, connection: Connection) -> None:
        if connection is not self.connection or connection.silent or connection.stuck:
            return
        if self.world.now < self.frozen_until:
            self.world.after(self.frozen_until - self.world.now, lambda: self._send(connection))
            return
        connection.answering = False
        if self.world.now < self.sick_until and not self.sick_at_open:
            self.failed = {connection.requests[0]}
            if isinstance(self.sickness, STEP_ERRORS):
                self.failed_as_everywhere |= {connection.requests[0]}
            self._end(connection, self.sickness)
            return
        self.failed.clear()
        self.coordinator.on_batch(
            connection.stream, self._make_batch(connection.requests.popleft())
        )
        self._answer(connection)
        self._wake_all()

    def _end(self, connection: Connection, error: InfeedError) -> None:
        if connection is not self.connection:
            return
        self.connection = None
        self.coordinator.on_stream_ended(connection.stream, error)
        self._wake_all()
