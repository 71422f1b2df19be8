"""Health of the servers of a target: connected, lost or left out, and when to try again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from infeed.shared.errors import InfeedError, ServerUnavailableError
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS

MIN_LEFT_OUT_SECONDS = 1.0
MAX_LEFT_OUT_SECONDS = 30.0
"""Bounds on the time for which a server is left out; it doubles until the server sends a batch."""

MAX_DRAIN_SILENCE_SECONDS = 90.0
"""Bound on the time without a batch on a stream whose end the server has announced.

Longer than a server takes to end it: 27 s at a shutdown and 60 s at the end of a connection's age,
by default. A proxy may keep a stream open whose server is gone.
"""


@dataclass(eq=False)
class Stream:
    """One attempt to read from a server, from the connection to its end."""

    server: str
    accepted: bool = False
    """Whether the server has accepted the stream."""
    draining: bool = False
    """Whether the server has announced the end of the stream."""
    active_at: float = 0.0
    """The time of the last batch, or of the announcement."""
    overdue: bool = False
    """Whether the client has cancelled the stream, because it did not end."""
    ended: bool = False
    report_interval: float = 0.0
    """Seconds between two reports to the server; 0: it takes none, or has not answered yet."""
    report_at: float = 0.0
    """The monotonic time from which on the next report may be sent."""

    def seconds_to_report(self, now: float) -> float:
        """Returns the seconds until the next report is due; infinite if the server takes none."""
        return max(0.0, self.report_at - now) if self.report_interval else math.inf


@dataclass
class ServerState:
    """The state of one server."""

    active: bool = False
    """Whether the server is connected, or its reader is connecting to it."""
    lost: bool = False
    """Whether the last connection failed, and the server has not accepted a stream since."""
    loss_logged: bool = False
    """Whether the loss was logged, so that the return is logged too."""
    left_out: bool = False
    """Whether the server has failed otherwise, and has not sent a batch since."""
    failed_step: int | None = None
    """The step that a server that is left out has failed; None: it cannot serve any."""
    renewable: bool = False
    """Whether it rejected a token that it had accepted, so that a renewed one may be valid."""
    error: InfeedError | None = None
    """Why the server was lost or left out."""
    retry_at: float = 0.0
    """The earliest time of the next attempt to connect."""
    backoff: float = MIN_BACKOFF_SECONDS
    left_out_seconds: float = MIN_LEFT_OUT_SECONDS

    @property
    def unhealthy(self) -> bool:
        """Whether the server was lost or left out, and has not recovered since."""
        return self.lost or self.left_out

    def on_stream_accepted(self) -> None:
        """Marks the server as connected."""
        self.lost = self.loss_logged = False
        self.backoff = MIN_BACKOFF_SECONDS

    def on_batch(self) -> None:
        """Marks the server as healthy."""
        self.left_out = False
        self.left_out_seconds = MIN_LEFT_OUT_SECONDS

    def on_connection_lost(self, error: InfeedError, now: float) -> None:
        """Marks the server as lost, or as unreachable from the beginning."""
        self.active = self.left_out = False
        self.lost, self.error = True, error
        self.retry_at = now + self.backoff
        self.backoff = min(2 * self.backoff, MAX_BACKOFF_SECONDS)

    def on_step_failed(self, now: float) -> None:
        """Ends the connection of a server that is healthy, but has answered with an error."""
        self.active = False
        self.retry_at = now + self.backoff

    def leave_out(
        self, error: InfeedError, step: int | None, now: float, *, renewable: bool = False
    ) -> None:
        """Marks the server as reachable but unable to serve this feed, for now."""
        self.active = self.lost = False
        self.left_out, self.error, self.failed_step = True, error, step
        self.renewable = renewable
        self.retry_at = now + self.left_out_seconds
        self.left_out_seconds = min(2 * self.left_out_seconds, MAX_LEFT_OUT_SECONDS)

    def has_failed(self, step: int) -> bool:
        """Returns whether the server has failed this step, and is not being tried again.

        A server that lacks a resource has not: it may have it at the next attempt. Nor has one
        that rejected a token which may be renewed by then.
        """
        may_recover = self.renewable or isinstance(self.error, ServerUnavailableError)
        failed = self.left_out and not may_recover
        return failed and not self.active and self.failed_step in {None, step}


class ServerStates(dict[str, ServerState]):
    """The states of all servers, by name. Not thread-safe."""

    def add(self, servers: Sequence[str]) -> None:
        """Adds the servers that are not known yet."""
        for server in servers:
            self.setdefault(server, ServerState())

    def has_turn(self, server: str) -> bool:
        """Returns whether the server is the one to connect to, where only one may serve.

        The first healthy server by name has the turn, so that all ranks of a job, which share one
        pass over a data set, use the same server.
        """
        unhealthy = self[server].unhealthy
        return not any(
            other.active or (not other.unhealthy and (unhealthy or name < server))
            for name, other in self.items()
            if name != server
        )

    def all_have_failed(self, step: int) -> bool:
        """Returns whether no server is left that could serve the step."""
        return bool(self) and all(each.has_failed(step) for each in self.values())

    @property
    def errors(self) -> dict[str, InfeedError]:
        """Why each server is lost or left out now, by name. Callable from any thread."""
        return {
            name: each.error for name, each in list(self.items()) if each.unhealthy and each.error
        }

    @property
    def lost(self) -> set[str]:
        """The servers that are gone unannounced, or left out. Callable from any thread."""
        return {name for name, each in list(self.items()) if each.loss_logged or each.left_out}

    def describe_errors(self) -> str:
        """Returns the errors with the names of the servers. Callable from any thread."""
        return "; ".join(f"{server}: {error.message}" for server, error in self.errors.items())

    def combined_error(self, target: str, problem: str, position: int) -> InfeedError:
        """Returns the error that ends a feed without a server, with the error of each.

        Its class is that of the first server that was left out. If that is the only server, it is
        its error.
        """
        left_out = [each.error for each in self.values() if each.left_out and each.error]
        if left_out and len(self) == 1:
            return left_out[0]
        error_class = type(left_out[0]) if left_out else ServerUnavailableError
        return error_class(
            f"{target}: {problem}; last errors: {self.describe_errors()}",
            target=target,
            position=position,
        )
