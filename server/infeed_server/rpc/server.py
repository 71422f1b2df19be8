"""The gRPC server: its connections, limits, authentication, health and reflection."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent import futures

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed.errors import AuthenticationError, ConfigError
from infeed.http2.keepalive import SERVER_PING_INTERVAL_SECONDS, SERVER_PING_TIMEOUT_SECONDS
from infeed_server.config.reloading import ReloadingValue
from infeed_server.engines.monitor import Monitor
from infeed_server.http2.connection import Connection
from infeed_server.http2.listener import Listener
from infeed_server.http2.socket import ServerSocket
from infeed_server.http2.stream import Stream
from infeed_server.http2.tls_socket import TLSServerSocket
from infeed_server.rpc import health
from infeed_server.rpc.batch_encoder import BatchEncoder
from infeed_server.rpc.call import ServerCall, StatusError
from infeed_server.rpc.limits import MAX_PEER_STREAMS, ConcurrencyLimit
from infeed_server.rpc.reflection import add_reflection
from infeed_server.rpc.router import Router
from infeed_server.rpc.servicer import SERVICE, FeedServicer
from infeed_server.rpc.shutdown import Shutdown
from infeed_server.rpc.status import to_status_error
from infeed_server.serving.auth import AllowAll, Authenticator
from infeed_server.serving.catalog import Catalog

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024
MAX_PEER_CONNECTIONS = 512
"""Connections of one host, so that one alone cannot use up all."""

MAX_STREAMS = 256
"""Open StreamBatches calls. Each holds a thread of the pool, which starts threads on demand."""

_MAX_SHORT_CALLS = 64
_MAX_PEER_SHORT_CALLS = 32
"""Calls other than StreamBatches have a limit of their own, so that pipelines can be listed while
all streams are in use."""

_MAX_HEALTH_CALLS = 32
_MAX_PEER_HEALTH_CALLS = 8
"""Health calls need no token, so they must not use up the limits of authenticated clients."""

_HEALTH_PREFIX = f"/{health.SERVICE}/"
"""Methods without authentication: health checks have no token, and reveal nothing else."""

_SEND_TIMEOUT_SECONDS = SERVER_PING_INTERVAL_SECONDS + SERVER_PING_TIMEOUT_SECONDS
"""A peer that accepts no data is lost after the same time as one that sends none."""

_DRAIN_POLL_INTERVAL_SECONDS = 0.02
_END_TIMEOUT_SECONDS = 1.0
"""Wait for the calls that are ended at shutdown. Only clients that do not read take as long."""

_CLOSE_TIMEOUT_SECONDS = 1.0
"""Wait for clients to close their connections once no call is left: one that the server closes may
lose what the client has not read yet."""

_ABORT_TIMEOUT_SECONDS = 5.0
"""Wait for the thread of each aborted connection at shutdown."""

_TLS_REQUIRED = AuthenticationError(
    "this port requires TLS: connect(..., tls=True or infeed.TLS(...))"
)


class RpcServer:
    """A gRPC server. It listens from its construction, and `start` begins to accept."""

    def __init__(
        self,
        catalog: Catalog,
        monitor: Monitor,
        address: str,
        *,
        share_port: bool = False,
        tls: ReloadingValue[ssl.SSLContext] | None = None,
        authenticator: Authenticator | None = None,
        peer_streams: int = MAX_PEER_STREAMS,
    ) -> None:
        """Without `tls`, nothing is encrypted; without `authenticator`, every client has access.

        `peer_streams` is the limit of streams for each host. Raises `ConfigError` when the address
        cannot be bound.
        """
        self._tls = tls
        self._authenticator = authenticator or AllowAll()
        self._health = health.HealthServicer()
        self._encoder = BatchEncoder(monitor)
        self._shutdown = Shutdown()
        servicer = FeedServicer(catalog, self._encoder, monitor, self._shutdown)
        self._router = Router(servicer, authenticate=self._authenticate)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._router)
        add_reflection((SERVICE, health.SERVICE), self._router)
        threads = MAX_STREAMS + _MAX_SHORT_CALLS + _MAX_HEALTH_CALLS
        self._pool = futures.ThreadPoolExecutor(threads, "infeed-rpc")
        self._streams = ConcurrencyLimit("streams", MAX_STREAMS, peer_streams)
        self._short_calls = ConcurrencyLimit("calls", _MAX_SHORT_CALLS, _MAX_PEER_SHORT_CALLS)
        self._health_calls = ConcurrencyLimit(
            "health calls", _MAX_HEALTH_CALLS, _MAX_PEER_HEALTH_CALLS
        )
        self._open_connections = ConcurrencyLimit(
            "connections", MAX_CONNECTIONS, MAX_PEER_CONNECTIONS
        )
        self._connections: dict[Connection, threading.Thread] = {}
        self._lock = threading.Lock()
        self._stopping = False
        try:
            self._listener = Listener(address, share_port=share_port)
        except OSError as error:
            problem = error.strerror.lower() if error.strerror else str(error)
            raise ConfigError(f"cannot listen on {address}: {problem}", address=address) from None
        self.port = self._listener.port

    def start(self) -> None:
        self._listener.start(self._on_connection)

    def set_serving(self, serving: bool) -> None:
        """Sets the health status of the server and of the feed service."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for name in ("", SERVICE):
            self._health.set(name, value)

    def stop(self, grace: float) -> None:
        """Refuses new calls, waits up to `grace` seconds for open streams, and ends the rest.

        Streams announce it in a message too: proxies do not forward GOAWAY.
        """
        self._health.shut_down()
        with self._lock:
            self._stopping = True
        self._listener.close()
        for connection in list(self._connections):
            connection.drain()
        self._shutdown.drain()
        _wait_until(lambda: not len(self._streams), grace)
        self._shutdown.end()
        self._health.end()
        _wait_until(lambda: not len(self._streams), _END_TIMEOUT_SECONDS)
        _wait_until(lambda: not self._connections, min(grace, _CLOSE_TIMEOUT_SECONDS))
        connections = dict(self._connections)
        for connection in connections:
            connection.abort()
        for thread in connections.values():
            thread.join(_ABORT_TIMEOUT_SECONDS)
        self._pool.shutdown()
        self._encoder.close()

    def _on_connection(self, accepted: socket.socket, peer: str) -> None:
        with self._lock:
            stopping = self._stopping
            problem = "the server is stopping" if stopping else self._open_connections.acquire(peer)
        if problem:
            log.info("%s was refused: %s", peer, problem)
            accepted.close()
            return
        try:
            self._start_thread(Connection(self._wrap(accepted), peer, self._on_stream))
        except BaseException as error:
            with self._lock:
                self._open_connections.release(peer)
            accepted.close()
            if not isinstance(error, OSError):  # the client has closed it already
                raise

    def _start_thread(self, connection: Connection) -> None:
        thread = threading.Thread(
            target=self._run, args=(connection,), name="infeed-peer", daemon=True
        )
        with self._lock:
            thread.start()  # it removes itself under the lock, so after it was added
            self._connections[connection] = thread
            if self._stopping:
                connection.abort()

    def _wrap(self, accepted: socket.socket) -> ServerSocket:
        if self._tls is None:
            return ServerSocket(accepted, _SEND_TIMEOUT_SECONDS)
        return TLSServerSocket(accepted, _SEND_TIMEOUT_SECONDS, self._tls.value)

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        except Exception:
            log.exception("a connection failed")
        finally:
            with self._lock:
                del self._connections[connection]
                self._open_connections.release(connection.peer)

    def _on_stream(self, stream: Stream) -> None:
        """Passes a call to a thread of the pool, or refuses it."""
        limit = self._limit_of(stream.headers.get(":path", ""))
        if self._tls is not None and not stream.encrypted:
            self._router.refuse(stream, to_status_error(_TLS_REQUIRED))
            return
        with self._lock:
            stopping = self._stopping
            problem = "the server is shutting down" if stopping else limit.acquire(stream.peer)
            if not problem:
                self._pool.submit(self._handle, stream, limit)
                return
        code = grpc.StatusCode.UNAVAILABLE if stopping else grpc.StatusCode.RESOURCE_EXHAUSTED
        self._router.refuse(stream, StatusError(code, problem))

    def _limit_of(self, method: str) -> ConcurrencyLimit:
        if method.startswith(_HEALTH_PREFIX):
            return self._health_calls
        return self._streams if method.endswith("/StreamBatches") else self._short_calls

    def _handle(self, stream: Stream, limit: ConcurrencyLimit) -> None:
        try:
            self._router.handle(stream)
        finally:
            with self._lock:
                limit.release(stream.peer)

    def _authenticate(self, call: ServerCall) -> None:
        if call.method.startswith(_HEALTH_PREFIX):
            return
        try:
            call.caller = self._authenticator.authenticate(call.authorization)
        except AuthenticationError as error:
            raise to_status_error(error) from None


def _wait_until(condition: Callable[[], bool], timeout: float) -> None:
    """Returns once the condition holds, or after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(_DRAIN_POLL_INTERVAL_SECONDS)
