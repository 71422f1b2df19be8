"""Admission of connections and calls: encryption, tokens, limits and the process's resources."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from infeed.errors import (
    AuthenticationError,
    InfeedError,
    InvalidRequestError,
    ServerUnavailableError,
)
from infeed_server.http2.protocol import MAX_HEADER_BYTES
from infeed_server.http2.refusals import Refusal
from infeed_server.rpc import health
from infeed_server.rpc.call import ServerCall, StatusError
from infeed_server.rpc.host_pace import HostPaces
from infeed_server.rpc.limits import ConcurrencyLimit, LimitReachedError, Limits, client_name
from infeed_server.rpc.resources import OutOfResourcesError, ThreadReserve, require_files
from infeed_server.rpc.status import to_status_error
from infeed_server.serving.auth import Authenticator

HEALTH_PREFIX = f"/{health.SERVICE}/"
"""Methods without authentication: health checks have no token, and reveal nothing else."""

_STREAM_SUFFIX = "/StreamBatches"

_LIMIT_REASONS: dict[str, Refusal] = {
    "connections": "connections",
    "streams": "streams",
    "calls": "calls",
    "health calls": "calls",
}

_CONNECTION_FRAMES = 10.0
"""Charge for a new connection, in frames: its thread, and with TLS its handshake."""

_TLS_REQUIRED = AuthenticationError(
    "this port requires TLS: connect(..., tls=True or infeed.TLS(...))"
)


class RefusedError(Exception):
    """A connection is refused."""

    def __init__(self, reason: Refusal, problem: object) -> None:
        super().__init__(str(problem))
        self.reason = reason


class CallRefusedError(RefusedError):
    """A call is refused, with a status."""

    def __init__(self, reason: Refusal, status: StatusError) -> None:
        super().__init__(reason, status)
        self.status = status


@dataclass
class ConnectionCount:
    """The client under which a connection is counted: its host, until a call tells more."""

    host: str
    client: str


class Admission:
    """Counts open connections and calls, and refuses those that are too many. Thread-safe."""

    def __init__(self, limits: Limits, authenticator: Authenticator, *, requires_tls: bool) -> None:
        self._authenticator = authenticator
        self._requires_tls = requires_tls
        self.connections = ConcurrencyLimit(
            "connections", limits.connections, limits.peer_connections
        )
        self.streams = ConcurrencyLimit("streams", limits.streams, limits.peer_streams)
        self.calls = ConcurrencyLimit("calls", limits.calls, limits.peer_calls)
        self.health_calls = ConcurrencyLimit(
            "health calls", limits.health_calls, limits.peer_health_calls
        )
        self._threads = ThreadReserve()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._paces = HostPaces()

    def pace(self, connection: ConnectionCount, frames: float = _CONNECTION_FRAMES) -> None:
        """Waits until the connection's host may have sent so many frames, or the server stops."""
        if delay := self._paces.charge(connection.host, frames):
            self._stopping.wait(delay)

    def stop(self) -> None:
        """Refuses whatever comes from now on."""
        with self._lock:
            self._stopping.set()

    def open_connection(self, peer: str, descriptor: int) -> ConnectionCount:
        """Counts a connection. Raises `RefusedError`."""
        client = client_name(peer)
        with self._lock:
            if self._stopping.is_set():
                raise RefusedError("stopping", "the server is stopping")
            try:
                require_files(descriptor)
            except OutOfResourcesError as error:
                raise RefusedError("descriptors", error) from None
            try:
                self._threads.require()
            except OutOfResourcesError as error:
                raise RefusedError("threads", error) from None
            try:
                self.connections.acquire(client)
            except LimitReachedError as error:
                raise RefusedError("connections", error) from None
        return ConnectionCount(client, client)

    def close_connection(self, connection: ConnectionCount) -> None:
        with self._lock:
            self.connections.release(connection.client)

    def open_call(self, call: ServerCall, connection: ConnectionCount) -> Callable[[], None]:
        """Authenticates and counts a call; returns the function that ends the count, once.

        Raises `CallRefusedError`.
        """
        if self._requires_tls and not call.encrypted:
            raise _refused("unencrypted", _TLS_REQUIRED)
        if not call.has_all_headers:
            problem = f"headers of more than {MAX_HEADER_BYTES} bytes: send less metadata"
            raise _refused("headers", InvalidRequestError(problem), "RESOURCE_EXHAUSTED")
        client = client_name(call.peer(), call.client_certificate)
        is_health = call.method.startswith(HEALTH_PREFIX)
        if not is_health:
            try:
                call.caller = self._authenticator.authenticate(call.authorization, client)
            except AuthenticationError as error:
                raise _refused("unauthenticated", error) from None
            client = call.caller.name
        with self._lock:
            limit = self._count(call.method, client, connection)
        call.admit(authenticated=not is_health)

        is_open = True

        def close() -> None:
            nonlocal is_open
            with self._lock:
                if is_open:
                    limit.release(client)
                is_open = False

        return close

    def _count(self, method: str, client: str, connection: ConnectionCount) -> ConcurrencyLimit:
        if self._stopping.is_set():
            status = StatusError(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
            raise CallRefusedError("stopping", status)
        try:
            limit = self._limit_of(method)
            if limit is self.streams:
                self._threads.require(streams=1)
            if connection.client == connection.host != client:
                self.connections.move(connection.client, client)
                connection.client = client
            limit.acquire(client)
        except OutOfResourcesError as error:
            raise _refused(
                "threads", ServerUnavailableError(str(error)), "RESOURCE_EXHAUSTED"
            ) from None
        except LimitReachedError as error:
            problem = ServerUnavailableError(str(error), limit=error.kind, client=error.client)
            raise _refused(_LIMIT_REASONS[error.kind], problem, "RESOURCE_EXHAUSTED") from None
        return limit

    def _limit_of(self, method: str) -> ConcurrencyLimit:
        if method.startswith(HEALTH_PREFIX):
            return self.health_calls
        return self.streams if method.endswith(_STREAM_SUFFIX) else self.calls


def _refused(reason: Refusal, error: InfeedError, code: str | None = None) -> CallRefusedError:
    return CallRefusedError(reason, to_status_error(error, code))
