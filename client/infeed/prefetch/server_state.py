"""Health of the servers of a target: connected, lost or excluded, and when to try again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infeed.errors import InfeedError
from infeed.transport import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS

_EXCLUDED_RETRY_INTERVAL_SECONDS = 10.0
"""Period at which an excluded server is tried again: it may have been redeployed."""


@dataclass(eq=False)
class Stream:
    """One attempt to read from a server, from the connection to its end."""

    server: str
    accepted: bool = False
    """Whether the server has accepted the stream."""
    draining: bool = False
    ended: bool = False


@dataclass
class ServerState:
    """The state of one server."""

    active: bool = False
    """Whether the server is connected, or its reader is connecting to it."""
    excluded_by: InfeedError | None = None
    """The error that shows that the server cannot serve this feed."""
    last_error: str = ""
    """Why the last connection was lost."""
    retry_at: float = 0.0
    """The earliest time of the next attempt to connect."""
    backoff: float = MIN_BACKOFF_SECONDS

    @property
    def unhealthy(self) -> bool:
        """Whether the server was lost or excluded, and has not accepted a stream since."""
        return bool(self.last_error) or self.excluded_by is not None

    def on_stream_accepted(self) -> None:
        """Marks the server as healthy."""
        self.excluded_by, self.last_error = None, ""
        self.backoff = MIN_BACKOFF_SECONDS

    def on_connection_lost(self, error: InfeedError, now: float) -> None:
        """Marks the server as lost, or as unreachable from the beginning."""
        self.active = False
        self.excluded_by, self.last_error = None, error.message
        self.retry_at = now + self.backoff
        self.backoff = min(2 * self.backoff, MAX_BACKOFF_SECONDS)

    def exclude(self, error: InfeedError, now: float) -> None:
        """Marks the server as reachable but unable to serve this feed."""
        self.active = False
        self.excluded_by = error
        self.retry_at = now + _EXCLUDED_RETRY_INTERVAL_SECONDS


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

    @property
    def exclusion(self) -> InfeedError | None:
        """The error of the first excluded server, if any."""
        return next((each.excluded_by for each in self.values() if each.excluded_by), None)

    @property
    def all_excluded(self) -> bool:
        """Whether no server is left that could serve the feed."""
        return all(each.excluded_by for each in self.values())

    @property
    def last_errors(self) -> dict[str, str]:
        """Why each server that is lost now was lost, by name. Callable from any thread."""
        return {name: each.last_error for name, each in list(self.items()) if each.last_error}
