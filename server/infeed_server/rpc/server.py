"""The gRPC server: connections, calls, limits, health and reflection put together."""

from __future__ import annotations

import logging
import socket
import threading
import time
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from infeed.errors import ConfigError
from infeed.keepalive import SERVER_PATIENCE_SECONDS, SERVER_PING_SECONDS
from infeed_server.engines.monitor import Monitor
from infeed_server.http2.connection import Connection
from infeed_server.http2.listener import Listener
from infeed_server.http2.stream import Stream
from infeed_server.http2.wire import Wire
from infeed_server.rpc.call import StatusError
from infeed_server.rpc.encoder import Encoder
from infeed_server.rpc.handlers import Handlers
from infeed_server.rpc.servicer import SERVICE, FeedServicer
from infeed_server.service.catalog import Catalog

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1024

MAX_STREAMS = 256
"""Open streams. Each holds one thread of the pool, which makes threads only as they are needed."""

_RESERVE = 16
"""Threads beyond the streams, so that a health check is answered when all streams are taken."""

_SEND_SECONDS = SERVER_PING_SECONDS + SERVER_PATIENCE_SECONDS
"""A peer that takes nothing for so long is gone, as one that says nothing."""

_POLL_SECONDS = 0.02
_CUT_SECONDS = 5.0


class RpcServer:
    """A gRPC server that listens from the start and can be asked for its port."""

    def __init__(
        self, catalog: Catalog, monitor: Monitor, address: str, *, share_port: bool = False
    ) -> None:
        """Raises `ConfigError` when the address cannot be listened on."""
        self._health = health.HealthServicer(experimental_non_blocking=False)
        self._encoder = Encoder(monitor)
        self._handlers = Handlers(FeedServicer(catalog, self._encoder, monitor))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._handlers)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._handlers)
        self._pool = futures.ThreadPoolExecutor(MAX_STREAMS + _RESERVE, "infeed-rpc")
        self._calls = 0
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
        """Takes no more calls and ends open ones after `grace` seconds."""
        self._health.enter_graceful_shutdown()
        with self._lock:
            self._stopping = True
        self._listener.close()
        for connection in list(self._connections):
            connection.drain()
        deadline = time.monotonic() + grace
        while self._calls and time.monotonic() < deadline:
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
            if self._stopping or len(self._connections) >= MAX_CONNECTIONS:
                accepted.close()
                return
            try:
                connection = Connection(Wire(accepted, _SEND_SECONDS), peer, self._accept)
            except OSError:
                accepted.close()
                return
            thread = threading.Thread(
                target=self._run, args=(connection,), name="infeed-peer", daemon=True
            )
            try:
                thread.start()  # it takes itself off the list, for which it needs the lock
            except RuntimeError:  # no more threads
                accepted.close()
                return
            self._connections[connection] = thread

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        except Exception:
            log.exception("a connection failed")
        finally:
            with self._lock:
                del self._connections[connection]

    def _accept(self, stream: Stream) -> None:
        """Hands a call to a thread, or refuses it: there is none, or the server is stopping."""
        is_feed = stream.headers.get(":path", "").endswith("/StreamBatches")
        limit = MAX_STREAMS if is_feed else MAX_STREAMS + _RESERVE
        with self._lock:
            stopping, room = self._stopping, self._calls < limit
            if room and not stopping:
                self._calls += 1
                self._pool.submit(self._answer, stream)
                return
        if stopping:
            problem = StatusError(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
        else:
            told = f"the server answers {limit} calls already"
            problem = StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, told)
        self._handlers.refuse(stream, problem)

    def _answer(self, stream: Stream) -> None:
        try:
            self._handlers.answer(stream)
        finally:
            with self._lock:
                self._calls -= 1
