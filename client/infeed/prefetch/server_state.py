"""Health of the servers of a target: connected, lost or left out, and when to try again."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field

from infeed.prefetch.feed_plan import FeedPlan
from infeed.prefetch.stream import Stream
from infeed.shared.errors import (
    AuthenticationError,
    CursorError,
    InfeedError,
    InvalidRequestError,
    SampleError,
    ServerUnavailableError,
    UserCodeError,
)
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS

log = logging.getLogger(__name__)

MIN_LEFT_OUT_SECONDS = 1.0
MAX_LEFT_OUT_SECONDS = 30.0
"""Bounds on the time that a server is left out, which doubles until the server sends a batch."""

UNREACHABLE_WARNING_INTERVAL_SECONDS = 60.0
"""Period at which a process logs an unreachable server, over all feeds: each pass of a dataset
opens another feed, and a shorter period fills the log during short passes."""

_named_at: dict[str, float] = {}
"""For each server, the monotonic time at which this process last logged its loss."""

STEP_ERRORS = (SampleError, UserCodeError, CursorError, InvalidRequestError)
"""Errors of a step that another server would usually raise as well."""

CONFIRMATION_TIMEOUT_SECONDS = 30.0
"""Seconds to wait for another server's answer to a step that one server failed, at least a batch's
usual time: fewer may end a feed because of one host's fault."""


@dataclass
class ServerState:
    """The state of one server."""

    active: set[str] = field(default_factory=set)
    """The streams to the server by name, including those about to connect."""
    accepted: dict[str, None] = field(default_factory=dict)
    """The streams that the server has accepted, in order; the first one reports."""
    faulty: set[str] = field(default_factory=set)
    """Names of streams that ended with a protocol error and have sent no batch since."""
    lost: bool = False
    """Whether the last connection failed and the server has accepted no stream since."""
    loss_logged: bool = False
    announced: bool = False
    """Whether it ended a stream as it had announced, and has accepted none since."""
    left_out: bool = False
    """Whether the server failed in another way and has sent no batch since."""
    failed_step: int | None = None
    """The step for which the server was left out; None: it cannot serve any."""
    renewable: bool = False
    """Whether it rejected a token accepted before, so that a renewed one may be valid."""
    error: InfeedError | None = None
    """Why the server was lost or left out."""
    returned_at: float = -math.inf
    """The time at which it served again after being lost or left out."""
    retry_at: float = 0.0
    """The earliest time of the next attempt to connect."""
    backoff: float = 0.0

    @property
    def unhealthy(self) -> bool:
        """Whether the server was lost or left out, and has not recovered since."""
        return self.lost or self.left_out

    def retry(self, stream: Stream, now: float, low: float, high: float) -> None:
        """Ends the attempt; the next one follows after twice the delay, within bounds. Streams that
        end together count once."""
        self.active.discard(stream.name)
        self.accepted.pop(stream.name, None)
        if now >= self.retry_at:
            self.backoff = min(max(low, 2 * self.backoff), high)
            self.retry_at = now + self.backoff

    def has_failed(self, step: int) -> bool:
        """Returns whether the server failed this step for good: one that lacks a resource, or
        rejects a token that may be renewed, may recover."""
        may_recover = self.renewable or isinstance(self.error, ServerUnavailableError)
        failed = self.left_out and not may_recover
        return failed and not self.active and self.failed_step in {None, step}


class ServerStates(dict[str, ServerState]):
    """The states of all servers by name; logs their changes. Not thread-safe."""

    def __init__(self, plan: FeedPlan) -> None:
        super().__init__()
        self.connected: list[str] = []
        """Every server ever connected, in order of first connection."""
        self.losses = self.reconnects = self.left_out = 0
        self._feed = plan.spec.name

    def on_stream_accepted(self, stream: Stream, now: float) -> None:
        """Marks a server as connected."""
        server, state = stream.server, self[stream.server]
        state.accepted[stream.name] = None
        if state.loss_logged:
            name = self._name(stream, has_others=len(state.accepted) > 1)
            log.warning("%s: %s is back", self._feed, name)
            if state.lost:
                state.returned_at = now
        state.lost = state.loss_logged = state.announced = False
        if not state.left_out and stream.name not in state.faulty:
            state.backoff = 0.0
        if server not in self.connected:
            self.connected.append(server)
        self.reconnects += self.reconnects < self.losses

    def on_batch(self, stream: Stream, now: float) -> None:
        """Marks a server as healthy."""
        server, state = stream.server, self[stream.server]
        state.faulty.discard(stream.name)
        if state.left_out:
            log.warning("%s serves the feed again", server)
            state.left_out, state.backoff, state.returned_at = False, 0.0, now

    def is_fault_of_connection(self, stream: Stream) -> bool:
        """Returns whether the connection, not the server, is to blame for a protocol error: the
        server's other connections are open and had none."""
        state = self[stream.server]
        state.faulty.add(stream.name)
        return stream.accepted and not state.accepted.keys() <= state.faulty

    def lose(self, stream: Stream, error: InfeedError, now: float) -> None:
        """Marks a server as lost, or as never reached."""
        state = self[stream.server]
        self.losses += stream.accepted
        state.retry(stream, now, MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        # A server that drains has announced the end of the stream, often only to move it.
        state.announced |= stream.draining
        is_news = not state.loss_logged or not (state.accepted or state.lost)
        if is_news and not stream.draining:
            state.loss_logged = True
            named_at = _named_at.get(stream.server, -math.inf)
            if stream.accepted or now >= named_at + UNREACHABLE_WARNING_INTERVAL_SECONDS:
                name = self._name(stream, has_others=bool(state.accepted))
                absent = "shuts down as announced" if state.announced else "cannot be reached"
                problem = "is lost" if stream.accepted else absent
                line = "%s: %s %s, and is tried again: %s"
                log.warning(line, self._feed, name, problem, error.message)
                _named_at[stream.server] = now
        state.error = error
        if not state.accepted:
            state.lost, state.left_out = True, False

    @staticmethod
    def _name(stream: Stream, *, has_others: bool) -> str:
        """Returns the server, or one of its connections while others are open."""
        number = f"connection {stream.number + 1} to " if has_others else ""
        return number + stream.server

    def leave_out(self, stream: Stream, error: InfeedError, step: int | None, now: float) -> None:
        """Marks a server as reachable but unable to serve this feed, for now."""
        server, state = stream.server, self[stream.server]
        self.left_out += not state.left_out
        # Its token was valid when the stream began. The next attempt has the one of that time.
        state.renewable = stream.accepted and isinstance(error, AuthenticationError)
        state.retry(stream, now, MIN_LEFT_OUT_SECONDS, MAX_LEFT_OUT_SECONDS)
        if not state.left_out and (len(self) > 1 or state.renewable or state.accepted):
            reason = f"{type(error).__name__}: {error.message}"
            log.warning("%s is left out of the feed for now: %s", server, reason)
        state.lost, state.left_out, state.error, state.failed_step = False, True, error, step

    def absence(self, server: str) -> str:
        """Returns what happened to a server that does not serve, as the end of a sentence."""
        if self[server].left_out:
            return "is left out for its error"
        return "is lost" if server in self.connected else "was never reached"

    def has_turn(self, server: str) -> bool:
        """Returns whether to connect to the server, if only one may serve: the first healthy one by
        name, so that all ranks of a job share its pass over the dataset."""
        unhealthy = self[server].unhealthy
        return not any(
            other.active or (not other.unhealthy and (unhealthy or name < server))
            for name, other in self.items()
            if name != server
        )

    def all_have_failed(self, step: int) -> bool:
        """Returns whether no server is left that could serve the step."""
        return bool(self) and all(state.has_failed(step) for state in self.values())

    def describe_errors(self) -> str:
        """Returns why each server is lost or left out now. Callable from any thread."""
        return "; ".join(
            f"{server}: {state.error.message}"
            for server, state in list(self.items())
            if state.unhealthy and state.error
        )

    def combined_error(self, target: str, problem: str, position: int) -> InfeedError:
        """Returns the error that ends a feed without a server, with the error of each."""
        left_out = [state.error for state in self.values() if state.left_out and state.error]
        if left_out and len(self) == 1:
            return left_out[0]
        error_class = type(left_out[0]) if left_out else ServerUnavailableError
        return error_class(
            f"{target}: {problem}; last errors: {self.describe_errors()}",
            target=target,
            position=position,
        )


class StepFailures:
    """Steps that one server failed and no other has answered. Not thread-safe."""

    def __init__(self) -> None:
        self._first: dict[int, tuple[str, InfeedError]] = {}
        self._changed_at = -math.inf

    def is_confirmed(self, step: int, server: str, error: InfeedError, now: float) -> bool:
        """Returns whether another server failed the step too; if not, remembers the error."""
        if step not in self._first:
            self._first[step], self._changed_at = (server, error), now
        return self._first[step][0] != server

    def on_delivered(self, step: int, now: float) -> None:
        """Forgets the failure of a step that a server has sent after all."""
        self._first.pop(step, None)
        self._changed_at = now

    def unanswered(self, next_step: int, now: float, usual_seconds: float) -> InfeedError | None:
        """Returns the error of the next step if no other server has answered it in time."""
        timeout = max(CONFIRMATION_TIMEOUT_SECONDS, usual_seconds)
        _, error = self._first.get(next_step, ("", None))
        return error if now >= self._changed_at + timeout else None
