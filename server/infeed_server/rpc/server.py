"""The gRPC server: connections, calls, limits, health and reflection put together."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from infeed.errors import AuthenticationError, ConfigError
from infeed.keepalive import SERVER_PATIENCE_SECONDS, SERVER_PING_SECONDS
from infeed_server.config.watched import Watched
from infeed_server.engines.monitor import Monitor
from infeed_server.http2.connection import Connection
from infeed_server.http2.listener import Listener
from infeed_server.http2.secure import SecureWire
from infeed_server.http2.stream import Stream
from infeed_server.http2.wire import Wire
from infeed_server.rpc import health
from infeed_server.rpc.call import ServerCall, StatusError
from infeed_server.rpc.encoder import Encoder
from infeed_server.rpc.handlers import Handlers
from infeed_server.rpc.limits import MAX_PEER_STREAMS, Limit
from infeed_server.rpc.servicer import SERVICE, FeedServicer
from infeed_server.rpc.status import refusal
from infeed_server.service.access import Access, Anybody
from infeed_server.service.catalog import Catalog

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024
MAX_PEER_CONNECTIONS = 512
"""Of one host: nobody alone can keep all others out."""

MAX_STREAMS = 256
"""Open streams. Each holds one thread of the pool, which makes threads only as they are needed."""

_SHORT_CALLS = 64
_PEER_SHORT_CALLS = 32
"""Calls that are no streams: trainers are told of pipelines when all streams are taken."""

_HEALTH_CALLS = 32
_PEER_HEALTH_CALLS = 8
"""Who watches a server's health needs no token, so that takes no place of who has one."""

_ALWAYS_ANSWERED = "/grpc.health.v1.Health/"
"""Whoever asks after a server's health has no token, and is told nothing else."""

_SEND_SECONDS = SERVER_PING_SECONDS + SERVER_PATIENCE_SECONDS
"""A peer that takes nothing for so long is gone, as one that says nothing."""

_POLL_SECONDS = 0.02
_CUT_SECONDS = 5.0


class RpcServer:
    """A gRPC server that listens from the start and can be asked for its port."""

    def __init__(
        self,
        catalog: Catalog,
        monitor: Monitor,
        address: str,
        *,
        share_port: bool = False,
        tls: Watched[ssl.SSLContext] | None = None,
        access: Access | None = None,
        peer_streams: int = MAX_PEER_STREAMS,
    ) -> None:
        """`tls` None: in the clear. `access` None: to anybody. `peer_streams` of one host.

        Raises `ConfigError` when the address cannot be listened on.
        """
        self._tls = tls
        self._access = access or Anybody()
        self._health = health.HealthServicer()
        self._encoder = Encoder(monitor)
        servicer = FeedServicer(catalog, self._encoder, monitor)
        self._handlers = Handlers(servicer, admit=self._admit)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._handlers)
        names = (SERVICE, health.SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._handlers)
        most = MAX_STREAMS + _SHORT_CALLS + _HEALTH_CALLS
        self._pool = futures.ThreadPoolExecutor(most, "infeed-rpc")
        self._feeds = Limit("streams", MAX_STREAMS, peer_streams)
        self._short = Limit("calls", _SHORT_CALLS, _PEER_SHORT_CALLS)
        self._watches = Limit("health calls", _HEALTH_CALLS, _PEER_HEALTH_CALLS)
        self._places = Limit("connections", MAX_CONNECTIONS, MAX_PEER_CONNECTIONS)
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
        self._listener.start(self._connect)

    def set_serving(self, serving: bool) -> None:
        """What the health service answers, for the server as a whole and for the service."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for name in ("", SERVICE):
            self._health.set(name, value)

    def stop(self, grace: float) -> None:
        """Takes no more calls, tells peers so, and gives open streams `grace` seconds to end."""
        self._health.end()
        with self._lock:
            self._stopping = True
        self._listener.close()
        for connection in list(self._connections):
            connection.drain()
        deadline = time.monotonic() + grace
        while len(self._feeds) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        connections = dict(self._connections)
        for connection in connections:
            connection.cut()
        for thread in connections.values():
            thread.join(_CUT_SECONDS)
        self._pool.shutdown()
        self._encoder.close()

    def _connect(self, accepted: socket.socket, peer: str) -> None:
        with self._lock:
            problem = "the server is stopping" if self._stopping else self._places.enter(peer)
        if problem:
            log.info("%s was refused: %s", peer, problem)
            accepted.close()
            return
        try:
            self._take(Connection(self._wire(accepted), peer, self._accept))
        except BaseException as error:
            with self._lock:
                self._places.leave(peer)
            accepted.close()
            if not isinstance(error, OSError):  # a peer that left at once
                raise

    def _take(self, connection: Connection) -> None:
        thread = threading.Thread(
            target=self._run, args=(connection,), name="infeed-peer", daemon=True
        )
        with self._lock:
            thread.start()  # it takes itself off the list, for which it needs the lock
            self._connections[connection] = thread
            if self._stopping:
                connection.cut()

    def _wire(self, accepted: socket.socket) -> Wire:
        if self._tls is None:
            return Wire(accepted, _SEND_SECONDS)
        return SecureWire(accepted, _SEND_SECONDS, self._tls.value)

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        except Exception:
            log.exception("a connection failed")
        finally:
            with self._lock:
                del self._connections[connection]
                self._places.leave(connection.peer)

    def _accept(self, stream: Stream) -> None:
        """Hands a call to a thread, or refuses it."""
        limit = self._limit(stream.headers.get(":path", ""))
        if self._tls is not None and not stream.secure:
            self._handlers.refuse(stream, refusal(_IN_THE_CLEAR))
            return
        with self._lock:
            stopping = self._stopping
            problem = "the server is shutting down" if stopping else limit.enter(stream.peer)
            if not problem:
                self._pool.submit(self._answer, stream, limit)
                return
        code = grpc.StatusCode.UNAVAILABLE if stopping else grpc.StatusCode.RESOURCE_EXHAUSTED
        self._handlers.refuse(stream, StatusError(code, problem))

    def _limit(self, method: str) -> Limit:
        if method.startswith(_ALWAYS_ANSWERED):
            return self._watches
        return self._feeds if method.endswith("/StreamBatches") else self._short

    def _answer(self, stream: Stream, limit: Limit) -> None:
        try:
            self._handlers.answer(stream)
        finally:
            with self._lock:
                limit.leave(stream.peer)

    def _admit(self, call: ServerCall) -> None:
        if call.method.startswith(_ALWAYS_ANSWERED):
            return
        try:
            call.caller = self._access.admit(call.authorization)
        except AuthenticationError as error:
            raise refusal(error) from None


_IN_THE_CLEAR = AuthenticationError(
    "this port takes TLS only, and nothing in the clear: connect(..., tls=True or infeed.TLS(...))"
)
