"""The gRPC server: its connections, limits, authentication, health and reflection."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infeed.errors import ConfigError
from infeed.http2.keepalive import SERVER_PING_INTERVAL_SECONDS, SERVER_PING_TIMEOUT_SECONDS
from infeed.report import ServerReport
from infeed_server.config.reloading import ReloadingValue
from infeed_server.engines.monitor import EndedCall, Monitor
from infeed_server.http2.connection import Connection
from infeed_server.http2.lifetime import Lifetime
from infeed_server.http2.listener import Listener
from infeed_server.http2.socket import ServerSocket
from infeed_server.http2.stream import Stream
from infeed_server.http2.tls_socket import TLSServerSocket
from infeed_server.observe.jobs import Jobs
from infeed_server.rpc import health
from infeed_server.rpc.admission import (
    Admission,
    CallRefusedError,
    ConnectionCount,
    RefusedError,
)
from infeed_server.rpc.batch_encoder import BatchEncoder
from infeed_server.rpc.call import CallCancelledError, ServerCall, StatusError
from infeed_server.rpc.limits import Limits
from infeed_server.rpc.log_context import logged_call
from infeed_server.rpc.reflection import add_reflection
from infeed_server.rpc.router import Router
from infeed_server.rpc.servicer import SERVICE, FeedServicer
from infeed_server.rpc.shutdown import Shutdown
from infeed_server.rpc.status import to_call_error, to_client_text
from infeed_server.rpc.timeouts import parse_timeout
from infeed_server.rpc.trainer_log import TrainerLog
from infeed_server.serving.auth import AllowAll, Authenticator
from infeed_server.serving.catalog import Catalog

if TYPE_CHECKING:
    from infeed_server.rpc.request_tracer import RequestTracer

log = logging.getLogger(__name__)

FIRST_REQUEST_SECONDS = 10.0
"""Time of a connection for its first call, and of a call for its first message."""

_IDLE_SECONDS = 300.0
"""Time after which a connection without a call ends."""

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
        limits: Limits = Limits(),  # noqa: B008 - immutable
        connection_age: float | None = None,
        connection_age_grace: float = Lifetime.age_grace,
        jobs: Jobs | None = None,
        tracer: RequestTracer | None = None,
    ) -> None:
        """Without `tls`, nothing is encrypted; without `authenticator`, every client has access.

        `connection_age` is the time in seconds after which clients open new connections. `jobs`
        keeps the trainers' reports, `tracer` makes the spans of batches. Raises `ConfigError` when
        the address cannot be bound.
        """
        self._tls = tls
        self._requires_token = authenticator is not None
        self._monitor = monitor
        self._admission = Admission(
            limits, authenticator or AllowAll(), requires_tls=tls is not None
        )
        self._lifetime = Lifetime(
            FIRST_REQUEST_SECONDS, _IDLE_SECONDS, connection_age, connection_age_grace
        )
        self._health = health.HealthServicer()
        self._encoder = BatchEncoder(monitor)
        self._shutdown = Shutdown()
        self._trainers = TrainerLog()
        jobs = jobs or Jobs(lambda *_: ServerReport())
        servicer = FeedServicer(
            catalog, self._encoder, monitor, self._shutdown, self._trainers, jobs, tracer
        )
        self._router = Router(servicer)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._router)
        add_reflection((SERVICE, health.SERVICE), self._router)
        # Each call holds a thread of the pool, which starts threads on demand.
        threads = limits.streams + limits.calls + limits.health_calls
        self._pool = futures.ThreadPoolExecutor(threads, "infeed-rpc")
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

    def set_serving(self, serving: bool, reason: str = "", pipeline: str = "") -> None:
        """Sets the health status of a pipeline, else that of the server and of the feed service.

        Health checks have no token. So where others need one, they get neither reasons nor the
        status of a pipeline, which would show that it exists.
        """
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        if self._requires_token and pipeline:
            return
        text = "" if self._requires_token else to_client_text(reason)
        for name in (pipeline,) if pipeline else ("", SERVICE):
            self._health.set(name, value, text)

    def stop(self, grace: float) -> None:
        """Refuses new calls, waits up to `grace` seconds for open streams, and ends the rest.

        Streams announce it in a message too: proxies do not forward GOAWAY.
        """
        self._health.shut_down()
        self._admission.stop()
        with self._lock:
            self._stopping = True
        self._listener.close()
        for connection in list(self._connections):
            connection.drain()
        self._shutdown.drain()
        _wait_until(lambda: not len(self._admission.streams), grace)
        self._shutdown.end()
        self._health.end()
        _wait_until(lambda: not len(self._admission.streams), _END_TIMEOUT_SECONDS)
        _wait_until(lambda: not self._connections, min(grace, _CLOSE_TIMEOUT_SECONDS))
        connections = dict(self._connections)
        for connection in connections:
            connection.abort()
        for thread in connections.values():
            thread.join(_ABORT_TIMEOUT_SECONDS)
        self._pool.shutdown()
        self._encoder.close()
        self._trainers.close()

    def _on_connection(self, accepted: socket.socket, peer: str) -> None:
        try:
            count = self._admission.open_connection(peer, accepted.fileno())
        except RefusedError as error:
            log.info("%s was refused: %s", peer, error, extra={"fields": {"peer": peer}})
            self._monitor.on_refused(error.reason)
            accepted.close()
            return
        try:
            self._start_thread(self._connection(accepted, peer, count), count)
        except BaseException as error:
            self._admission.close_connection(count)
            accepted.close()
            if not isinstance(error, OSError):  # the client has closed it already
                raise

    def _connection(self, accepted: socket.socket, peer: str, count: ConnectionCount) -> Connection:
        return Connection(
            self._wrap(accepted),
            peer,
            lambda stream: self._on_stream(stream, count),
            lifetime=self._lifetime,
            on_refused=self._monitor.on_refused,
            pace=lambda frames: self._admission.pace(count, frames),
        )

    def _start_thread(self, connection: Connection, count: ConnectionCount) -> None:
        thread = threading.Thread(
            target=self._run, args=(connection, count), name="infeed-peer", daemon=True
        )
        with self._lock:
            thread.start()  # it removes itself under the lock, so after it was added
            self._connections[connection] = thread
            self._monitor.on_connections(len(self._connections))
            if self._stopping:
                connection.abort()

    def _wrap(self, accepted: socket.socket) -> ServerSocket:
        if self._tls is None:
            return ServerSocket(accepted, _SEND_TIMEOUT_SECONDS)
        return TLSServerSocket(accepted, _SEND_TIMEOUT_SECONDS, self._tls.value)

    def _run(self, connection: Connection, count: ConnectionCount) -> None:
        try:
            self._admission.pace(count)
            connection.run()
        except Exception:
            log.exception("a connection failed")
        finally:
            with self._lock:
                del self._connections[connection]
                self._monitor.on_connections(len(self._connections))
            self._admission.close_connection(count)

    def _on_stream(self, stream: Stream, count: ConnectionCount) -> None:
        """Passes a call to a thread of the pool, or refuses it."""
        call = ServerCall(stream)
        self._monitor.on_call_started(self._method(call))
        try:
            timeout = parse_timeout(call.headers.get("grpc-timeout"))
            close = self._admission.open_call(call, count)
        except CallRefusedError as error:
            self._monitor.on_refused(error.reason)
            self._refuse(call, error.status)
            return
        except Exception as error:  # noqa: BLE001 - it would end the connection's other calls
            self._refuse(call, to_call_error(error))
            return
        if timeout is not None:
            call.end_after(timeout, f"the deadline of {timeout:g} s has passed")
        call.require_request(FIRST_REQUEST_SECONDS, lambda: self._monitor.on_refused("no_request"))
        self._submit(call, close)

    def _submit(self, call: ServerCall, close: Callable[[], None]) -> None:
        def handle() -> None:
            try:
                with logged_call(call):
                    self._router.handle(call)
            finally:
                close()
                self._count(call)
                if call.feed is not None:
                    self._trainers.on_end(call.feed, call.status, left=call.reset_by_peer)

        try:
            self._pool.submit(handle)
        except RuntimeError as error:  # the pool was shut down, or no thread can be started
            close()
            self._refuse(call, StatusError(grpc.StatusCode.UNAVAILABLE, str(error)))

    def _refuse(self, call: ServerCall, error: StatusError | CallCancelledError) -> None:
        if isinstance(error, StatusError):
            self._router.refuse(call, error)
        self._count(call)

    def _method(self, call: ServerCall) -> str:
        """Returns the method's name for metrics: clients choose it."""
        return call.method if self._router.has_method(call.method) else "unknown"

    def _count(self, call: ServerCall) -> None:
        self._monitor.on_call(
            EndedCall(
                self._method(call),
                call.status.name,
                time.monotonic() - call.began_at,
                call.sent_bytes,
                call.received_bytes,
            )
        )


def _wait_until(condition: Callable[[], bool], timeout: float) -> None:
    """Returns once the condition holds, or after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition() and time.monotonic() < deadline:
        time.sleep(_DRAIN_POLL_INTERVAL_SECONDS)
