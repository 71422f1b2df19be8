"""Coordinator: every decision about the servers of one feed.

No threads and no I/O; the clock is passed in: `tests/simulation` runs years of faults.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from infeed.http2.target import is_unix
from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.ready_batches import EndOfFeed, FeedItem
from infeed.prefetch.server_state import STEP_ERRORS, ServerState, ServerStates, StepFailures
from infeed.prefetch.step_scheduler import StepScheduler
from infeed.prefetch.stream import MAX_DRAIN_SILENCE_SECONDS, Stream
from infeed.shared.errors import InfeedError, ProtocolError, ServerUnavailableError
from infeed.shared.sliding_window import SAMPLE_INTERVAL_SECONDS, WINDOW_SECONDS
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS
from infeed.wire.received import EndOfData, ReceivedBatch


class Coordinator:
    """Coordinates a feed's servers. Passes their batches to `deliver` in order, then the feed's end
    or error. Not thread-safe, except for the methods that say so."""

    def __init__(
        self,
        target: str,
        plan: FeedPlan,
        deliver: Callable[[FeedItem], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ended = False
        """Whether no further batch is requested or delivered."""
        self.closed = False
        self._end = EndOfFeed()
        self._target = target
        self._plan = plan
        self._deliver_item = deliver
        self._clock = clock
        self._window = plan.window()
        self._scheduler: StepScheduler[Any] = StepScheduler(plan.shard_plan.steps, clock)
        self._servers = ServerStates(plan)
        self.shared_memory: dict[str, str] = {}
        """For each Unix socket, why its batches are not in shared memory; empty if they are."""
        self._no_server_since: float | None = None
        self._failures = StepFailures()
        self._deliver()

    # From any thread.

    @property
    def lost_servers(self) -> set[str]:
        """The servers that vanished unannounced or were left out."""
        items = list(self._servers.items())
        lost = {name for name, state in items if state.loss_logged and not state.accepted}
        return lost | {name for name, state in items if state.left_out}

    @property
    def missing_servers(self) -> dict[str, str]:
        """The lost servers, and those that returned within a report's last seconds, with what
        happened to each."""
        since, lost = self._clock() - WINDOW_SECONDS - SAMPLE_INTERVAL_SECONDS, self.lost_servers
        return {
            name: self._servers.absence(name) if name in lost else "has just returned"
            for name, state in list(self._servers.items())
            if name in lost or state.returned_at > since
        }

    @property
    def server_count(self) -> int:
        """The number of servers that have accepted a stream."""
        return sum(bool(state.accepted) for state in list(self._servers.values()))

    def slow_connection(self) -> dict[str, Any]:
        """Returns a report's figures on the slowest connection, if there are several."""
        rates = {name: rate for name, rate in self._scheduler.batch_rates().items() if rate}
        if len(rates) < 2:
            return {}
        slow = min(rates, key=rates.__getitem__)
        slow_rate = rates.pop(slow)
        other_rate = sum(rates.values()) / len(rates)
        return {"slow_connection": slow, "slow_rate": slow_rate, "other_rate": other_rate}

    def counters(self, consumed_bytes: int) -> dict[str, Any]:
        """Returns the figures of `Stats` on servers and the prefetch window."""
        buffered = 0 if self.closed else self._window.received_bytes - consumed_bytes
        return {
            "servers": tuple(self._servers.connected),
            "reconnects": self._servers.reconnects,
            "left_out": self._servers.left_out,
            "hedges": self._scheduler.hedges,
            "prefetched_bytes": buffered,
            "prefetch_limit_bytes": self._window.max_bytes,
            "batch_rates": self._scheduler.batch_rates(),
            "shared_memory": dict(self.shared_memory),
        }

    def blocking_server(self) -> tuple[str, str]:
        """Returns the server from which the next batch is expected, and the reason for the wait."""
        if blocking := self._scheduler.blocking_server():
            return blocking[0], f"requested {blocking[1]:.1f} s ago"
        if errors := self._servers.describe_errors():
            return self._target, f"reconnecting after: {errors}"
        return self._target, "no answer from the server"

    # The events of one server, in this order.

    def add_servers(self, servers: Sequence[str]) -> None:
        """Adds servers of the target; a reader for each is about to connect."""
        for server in servers:
            self._servers.setdefault(server, ServerState())
        self._scheduler.single_server = sum(map(self._plan.connections_to, self._servers)) == 1

    def connect_delay(self, server: str) -> float:
        """Returns the seconds until the server may be connected to; infinite while it may not."""
        state = self._servers[server]
        if not (self._plan.multi_server or self._servers.has_turn(server)):
            return math.inf
        if state.unhealthy and state.active:
            return math.inf  # one connection is enough to find out whether it is back
        return max(0.0, state.retry_at - self._clock())

    def start_stream(self, server: str, number: int = 0) -> Stream:
        """Returns a new stream, which is about to connect to the server."""
        stream = Stream(server, number)
        self._servers[server].active.add(stream.name)
        return stream

    def on_connected(self, stream: Stream) -> None:
        """Makes the server available for steps until its stream ends. One that was lost or left out
        must accept the stream first: a stopped process still accepts connections."""
        if not stream.ended and not self._servers[stream.server].unhealthy:
            self._scheduler.add_server(stream.name)

    def on_stream_accepted(self, stream: Stream) -> None:
        """Makes the server available for steps: it has accepted the stream."""
        stream.accepted = True
        self._servers.on_stream_accepted(stream, self._clock())
        self._scheduler.add_server(stream.name)

    def takes_requests(self, stream: Stream) -> bool:
        """Returns whether the stream may get further requests."""
        return not (self.ended or stream.ended or stream.draining)

    def next_request(self, stream: Stream) -> int | None:
        """Returns the step to request on the stream now; None if there is none yet."""
        if not self.takes_requests(stream):
            return None
        if self._servers[stream.server].left_out:
            return self._scheduler.probe(stream.name, self._window.step_limit)
        if self._is_spared(stream.server):
            return None
        is_urgent = not self._window.is_half_ready(self._scheduler.next_step)
        return self._scheduler.assign(stream.name, self._window.step_limit, is_urgent=is_urgent)

    def seconds_to_report(self, stream: Stream, now: float) -> float:
        """Returns the seconds until the next report; infinite if another connection reports."""
        reports = next(iter(self._servers[stream.server].accepted), None) == stream.name
        return stream.seconds_to_report(now) if reports else math.inf

    def on_draining(self, stream: Stream) -> None:
        """Requests nothing more on the stream: the server has announced its end."""
        stream.draining, stream.active_at = True, self._clock()

    def is_overdue(self, stream: Stream) -> bool:
        """Returns whether to cancel the stream: its announced end does not come."""
        silent = self._clock() >= stream.active_at + MAX_DRAIN_SILENCE_SECONDS
        return stream.draining and silent and not (stream.ended or self.ended)

    def on_batch(self, stream: Stream, received: ReceivedBatch) -> None:
        """Buffers a received batch, and delivers what is next in order."""
        if self.ended:
            return
        stream.active_at = self._clock()
        self._no_server_since = None
        self._servers.on_batch(stream, stream.active_at)
        if self._scheduler.on_received(stream.name, received.step, received):
            self._window.on_received(received.payload_bytes)
        elif received.span is not None:
            received.span.end("duplicate")
        self._deliver()

    def on_end_of_data(self, end: EndOfData) -> None:
        """Ends the feed before a step: the server found the end of data of unknown length."""
        self._scheduler.end_at(end.step)
        self._end = EndOfFeed(end.position_count)
        self._deliver()

    def on_stream_ended(self, stream: Stream, error: BaseException) -> None:
        """Reassigns the stream's steps in flight. Ends the feed for an error that is not infeed's:
        no other server can repair that."""
        stream.ended = True
        if self.ended:  # the frames of the error hold the buffer of a batch
            return
        if not isinstance(error, InfeedError):
            self.fail(error)
        elif self._is_loss(stream, error):
            self._servers.lose(stream, error, self._clock())
            self._remove_server(stream.name)
        else:
            self._leave_out(stream, error)
        self.check_timeouts()

    def _is_loss(self, stream: Stream, error: InfeedError) -> bool:
        """Returns whether only the connection failed, so that it can be reopened."""
        if isinstance(error, ProtocolError):
            return self._servers.is_fault_of_connection(stream)
        return isinstance(error, ServerUnavailableError) and not error.exhausted

    # The events of the feed.

    def on_consumed(self, steps: int) -> None:
        """Moves the prefetch window to the first step not yet taken by the trainer."""
        self._window.on_consumed(steps)

    def fail(self, last: BaseException | EndOfFeed) -> None:
        """Ends the feed, with an error or normally, after the batches already delivered."""
        if not self.ended:
            self.ended = True
            self._deliver_item(last)

    def close(self) -> None:
        """Stops requesting and drops the buffered batches."""
        self.ended = self.closed = True
        self._scheduler.clear()

    def check_timeouts(self) -> None:
        """Ends the feed if for too long no server was available, or none confirmed an error."""
        if self.ended:
            return
        step, usual = self._scheduler.next_step, self._scheduler.late_seconds
        if error := self._failures.unanswered(step, self._clock(), usual):
            self._fail_step(step, error)
        if self.ended or self._scheduler.servers:
            return
        timeout, since = self._plan.options.reconnect_timeout, self._no_server_since
        start, _ = self._plan.shard_plan.batch_range(self._scheduler.next_step)
        if self._servers.all_have_failed(self._scheduler.next_step):
            problem = f"every server has failed at position {start}"
        elif since is not None and self._clock() >= since + timeout:
            problem = f"no server accepted the feed at position {start} within {timeout:g} s"
            if self._servers.losses:
                problem = f"connection lost at position {start}, no reconnect within {timeout:g} s"
        else:
            return
        self.fail(self._servers.combined_error(self._target, problem, start))

    def _is_spared(self, server: str) -> bool:
        """Returns whether a remote server is not needed, because those on this machine (`unix:`)
        keep up."""
        if is_unix(server) or not any(map(is_unix, self._scheduler.servers)):
            return False
        ready = self._window.is_half_ready(self._scheduler.next_step)
        return ready and not self._scheduler.has_reassigned

    def _leave_out(self, stream: Stream, error: InfeedError) -> None:
        """Leaves out, for some time, a server that answers but cannot serve this feed."""
        server = stream.server
        step = self._scheduler.oldest_in_flight(stream.name)
        if isinstance(error, STEP_ERRORS) and self._is_confirmed(server, step, error):
            # A healthy server may still have to send the steps before.
            now = self._clock()
            self._servers[server].retry(stream, now, MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
            self._fail_step(step, error)
        else:
            self._servers.leave_out(stream, error, step, self._clock())
        self._remove_server(stream.name)

    def _is_confirmed(self, server: str, step: int | None, error: InfeedError) -> bool:
        """Returns whether the error ends the feed: no other server would send the step."""
        if step is not None and not self._scheduler.is_needed(step):
            return False
        if not self._plan.multi_server or len(self._servers) == 1:
            return True
        return step is not None and self._failures.is_confirmed(step, server, error, self._clock())

    def _fail_step(self, step: int | None, error: InfeedError) -> None:
        """Ends the feed with an error in place of a step."""
        if step is None:
            self.fail(error)
        else:
            self._scheduler.fail(step, error)
            self._deliver()

    def _remove_server(self, stream: str) -> None:
        self._scheduler.remove_server(stream)
        if self._no_server_since is None and not self._scheduler.servers:
            self._no_server_since = self._clock()

    def _deliver(self) -> None:
        while not self.ended and (item := self._scheduler.pop_next()) is not None:
            self._failures.on_delivered(self._scheduler.next_step - 1, self._clock())
            if isinstance(item, ReceivedBatch):
                self._deliver_item(item)
            else:
                self.fail(item)
        if self._scheduler.complete:
            self.fail(self._end)
