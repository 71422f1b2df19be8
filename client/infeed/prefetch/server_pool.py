"""Server pool: coordinates the servers of one feed.

Assigns steps to servers, passes their batches on in order, and decides which failures end the feed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infeed.errors import InfeedError, ServerUnavailableError
from infeed.prefetch.byte_window import PrefetchWindow
from infeed.prefetch.closable_queue import ClosableQueue
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.server_state import ServerStates
from infeed.prefetch.step_scheduler import StepScheduler
from infeed.stats import PrefetchCounters
from infeed.wire.assembler import ReceivedBatch

log = logging.getLogger(__name__)

_HEDGE_CHECK_INTERVAL_SECONDS = 0.25
"""Period at which an idle server checks whether the next step should be hedged."""


@dataclass(frozen=True)
class EndOfFeed:
    """The queue item behind the last batch."""

    position_count: int | None = None
    """Positions of the data, if its length was unknown before."""


FeedItem = ReceivedBatch | BaseException | EndOfFeed


class ServerPool:
    """All servers of a feed; puts their batches into `received`, in order. Thread-safe.

    The last item is the end of the feed, or the error that ended it.
    """

    def __init__(self, target: str, plan: FeedPlan, received: ClosableQueue[FeedItem]) -> None:
        self._end = EndOfFeed()
        self._target = target
        self._plan = plan
        self._received = received
        self._window = PrefetchWindow(plan.prefetch_bytes, plan.contract.payload_bytes)
        self._scheduler: StepScheduler[ReceivedBatch | BaseException] = StepScheduler(
            plan.shard_plan.steps
        )
        # Batches can only come from several servers if they are the same on every server.
        self._multi_server = plan.spec.guarantee.resume == "constant_time"
        self._changed = threading.Condition()
        self._servers = ServerStates()
        self._counters = PrefetchCounters()
        self._no_server_since: float | None = None
        self._ended = False
        with self._changed:
            self._deliver()

    @property
    def counters(self) -> PrefetchCounters:
        """The statistics of the servers and of the prefetch window."""
        return replace(
            self._counters,
            hedges=self._scheduler.hedges,
            prefetched_bytes=self._window.buffered_bytes,
            prefetch_limit_bytes=self._window.max_bytes,
        )

    @property
    def ended(self) -> bool:
        """Whether no further batch is requested or delivered."""
        return self._ended

    def add_servers(self, servers: Sequence[str]) -> None:
        """Adds servers of the target; a reader for each is about to connect."""
        with self._changed:
            self._servers.add(servers)
            self._scheduler.single_server = len(self._servers) == 1

    # Called by the reader of a server, in this order.

    def wait_for_turn(self, server: str) -> bool:
        """Waits until the reader may connect to the server; returns False if the feed has ended.

        Where only one server at a time can serve a feed, the others wait here.
        """
        with self._changed:
            while not (self._ended or self._multi_server or self._servers.has_turn(server)):
                self._changed.wait()
            self._servers[server].active = True
            return not self._ended

    def on_connected(self, server: str, stream_ended: threading.Event) -> None:
        """Makes the server available for steps, until its stream has ended.

        A server that was lost or excluded must accept the stream first: the host of a stopped
        process still accepts connections.
        """
        with self._changed:
            state = self._servers[server]
            if not stream_ended.is_set():
                state.draining = False
                if not state.unhealthy:
                    self._add_server(server)

    def on_stream_opened(self, server: str) -> None:
        """Makes the server available for steps: it has accepted the stream."""
        with self._changed:
            self._servers[server].on_stream_opened()
            self._add_server(server)
            if server not in self._counters.servers:
                self._counters.servers.append(server)
            if self._counters.reconnects < self._counters.losses:
                self._counters.reconnects += 1

    def wait_for_step(self, server: str, stream_ended: threading.Event) -> int | None:
        """Waits for the next step to request from the server; None if its stream should end."""
        with self._changed:
            while not (self._ended or stream_ended.is_set() or self._servers[server].draining):
                step = self._scheduler.assign(server, self._window.step_limit)
                if step is not None:
                    return step
                may_hedge = self._multi_server and self._has_other_server(server)
                self._changed.wait(_HEDGE_CHECK_INTERVAL_SECONDS if may_hedge else None)
            return None

    def on_batch(self, server: str, step: int, batch: ReceivedBatch) -> None:
        """Buffers a received batch, and delivers what is next in order."""
        with self._changed:
            if self._ended:
                return
            self._no_server_since = None
            if self._scheduler.on_received(server, step, batch):
                self._window.on_received(batch.payload_bytes)
            self._deliver()

    def on_batch_failed(self, server: str, error: BaseException) -> None:
        """Ends the feed with an error in place of the server's oldest step in flight.

        For errors that another server would raise as well.
        """
        with self._changed:
            if self._ended:  # the frames of the error hold the buffer of a batch
                return
            step = self._scheduler.oldest_in_flight(server)
            if step is None:
                self._end_feed(error)
                return
            self._scheduler.on_received(server, step, error)
            self._scheduler.end_at(step + 1)
            self._remove_server(server)
            self._deliver()

    def on_end_of_data(self, step: int, position_count: int) -> None:
        """Ends the feed before this step: the server found the end of data of unknown length."""
        with self._changed:
            self._scheduler.end_at(step)
            self._end = EndOfFeed(position_count)
            self._deliver()

    def on_draining(self, server: str) -> None:
        """Requests nothing more from a server that shuts down; it still sends what is in flight."""
        with self._changed:
            self._servers[server].draining = True
            self._changed.notify_all()

    def on_connection_lost(self, server: str, error: InfeedError) -> None:
        """Reassigns the server's steps in flight; also called if it could not be reached at all."""
        with self._changed:
            state = self._servers[server]
            self._counters.losses += state.stream_open
            state.on_connection_lost(error)
            self._remove_server(server)
            self._fail_if_no_server()
            self._changed.notify_all()

    def exclude(self, server: str, error: InfeedError) -> None:
        """Excludes a server that answers but cannot serve this feed; fails if no other is left."""
        with self._changed:
            state = self._servers[server]
            if self._multi_server and state.excluded_by is None and len(self._servers) > 1:
                log.warning("%s is excluded from the feed: %s", server, error.message)
            state.exclude(error)
            self._remove_server(server)
            self._fail_if_no_server()
            self._changed.notify_all()

    def end_stream(self, stream_ended: threading.Event) -> None:
        """Sets the event and wakes the thread that waits for a step of this stream."""
        with self._changed:
            stream_ended.set()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Ends the feed with an error, behind the batches that were delivered."""
        with self._changed:
            self._end_feed(error)

    def backoff(self, seconds: float) -> None:
        """Waits before the next attempt to connect; returns early if the feed ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended, seconds)

    # Called by the feed.

    def on_consumed(self, payload_bytes: int) -> None:
        """Frees the space of a consumed batch in the prefetch window."""
        with self._changed:
            self._window.on_consumed(payload_bytes)
            self._changed.notify_all()

    def blocking_server(self) -> tuple[str, str]:
        """Returns the server that the next batch is expected from, and the reason for the wait."""
        with self._changed:
            if blocking := self._scheduler.blocking_server():
                return blocking[0], f"requested {blocking[1]:.1f} s ago"
            if errors := self._servers.last_errors:
                details = "; ".join(f"{name}: {error}" for name, error in errors.items())
                return self._target, f"reconnecting after: {details}"
            return self._target, "no answer from the server"

    def close(self) -> None:
        """Requests nothing more and drops the buffered batches."""
        with self._changed:
            self._ended = True
            self._scheduler.clear()
            self._window.clear()
            self._changed.notify_all()

    def check_reconnect_timeout(self) -> None:
        """Ends the feed if no server was available for too long; called periodically."""
        with self._changed:
            self._fail_if_no_server()

    def _has_other_server(self, server: str) -> bool:
        return any(name != server for name in self._scheduler.servers)

    def _add_server(self, server: str) -> None:
        self._scheduler.add_server(server)
        self._changed.notify_all()

    def _remove_server(self, server: str) -> None:
        self._scheduler.remove_server(server)
        if self._no_server_since is None and not self._scheduler.servers:
            self._no_server_since = time.monotonic()

    def _deliver(self) -> None:
        while not self._ended and (item := self._scheduler.pop_next()) is not None:
            if isinstance(item, ReceivedBatch):
                self._received.put(item)
            else:
                self._end_feed(item)
        if self._scheduler.complete:
            self._end_feed(self._end)
        self._changed.notify_all()

    def _end_feed(self, last: BaseException | EndOfFeed) -> None:
        if not self._ended:
            self._ended = True
            self._received.put(last)
        self._changed.notify_all()

    def _fail_if_no_server(self) -> None:
        if self._ended or self._scheduler.servers:
            return
        exclusion = self._servers.exclusion
        if exclusion is not None and self._servers.all_excluded:
            self._end_feed(exclusion)
            return
        timeout, since = self._plan.reconnect_timeout, self._no_server_since
        if since is not None and time.monotonic() >= since + timeout:
            self._end_feed(exclusion or self._connection_lost(timeout))

    def _connection_lost(self, timeout: float) -> ServerUnavailableError:
        start, _ = self._plan.shard_plan.batch_range(self._scheduler.next_step)
        errors = sorted(set(self._servers.last_errors.values()))
        return ServerUnavailableError(
            f"{self._target}: connection lost at position {start}, no reconnect within "
            f"{timeout:g} s; last error: {'; '.join(errors)}",
            target=self._target,
            position=start,
        )
