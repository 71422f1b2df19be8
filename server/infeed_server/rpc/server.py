"""The gRPC server, on grpcio: options, authentication, health, reflection and shutdown."""

from __future__ import annotations

import logging
import time
from concurrent import futures
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from infeed.shared.errors import ConfigError
from infeed.shared.keepalive import (
    CLIENT_PING_INTERVAL_SECONDS,
    SERVER_PING_INTERVAL_SECONDS,
    SERVER_PING_TIMEOUT_SECONDS,
)
from infeed_server.config.address import Address
from infeed_server.engines.memory_budget import MemoryBudget, default_limit
from infeed_server.rpc.admission import MAX_HEALTH_CALLS, STREAMS, Admission
from infeed_server.rpc.answers import BatchEncoder
from infeed_server.rpc.batch_stream import BatchStreams
from infeed_server.rpc.interceptor import CallInterceptor
from infeed_server.rpc.limits import Limits, max_connections
from infeed_server.rpc.servicer import SERVICE, FeedServicer, HealthServicer
from infeed_server.rpc.shared_memory import SharedMemory
from infeed_server.serving.auth import TokenAuthenticator
from infeed_server.serving.catalog import Catalog
from infeed_server.serving.instrument import Instrument
from infeed_server.serving.refused import RefusedBatches

log = logging.getLogger(__name__)

# It would log a traceback for each header that is not UTF-8.
logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)

_MAX_REQUEST_BYTES = 64 << 10
"""The largest message that a client may send; requests have a few dozen bytes."""

_IDLE_SECONDS = 60.0
"""Time after which a connection without a call ends. Clients connect again for their next call."""

_HANDSHAKE_TIMEOUT_SECONDS = 10.0
"""Time for TLS and the first frames of a connection; with less, slow networks could not connect."""

_MAX_STREAMS_OF_CONNECTION = 512
"""Maximum calls of one connection, since proxies carry the calls of many trainers. Further calls
wait in the client."""

_SPARE_THREADS = 8
"""Threads for calls over the limits, so that the server refuses them at once."""

_DRAIN_POLL_SECONDS = 0.02

_END_TIMEOUT_SECONDS = 1.0
"""Time that calls have to end at shutdown. Only calls of clients that do not read need it."""


class RpcServer:
    """A gRPC server: `open` binds its port, `start` begins to answer, `stop` drains it."""

    def __init__(
        self,
        catalog: Catalog,
        instrument: Instrument,
        *,
        limits: Limits = Limits(),  # noqa: B008 - immutable
        authenticator: TokenAuthenticator | None = None,
        budget: MemoryBudget | None = None,
        refused: RefusedBatches | None = None,
    ) -> None:
        """Without `authenticator`, every client has access. `budget` counts shared memory, and
        `refused` keeps the batches that cannot be read."""
        self.port = 0
        self._limits = limits
        self._budget = budget or MemoryBudget(default_limit())
        self._requires_token = authenticator is not None
        self._admission = Admission(limits, authenticator)
        self._health = HealthServicer()
        self._encoder = BatchEncoder(instrument.monitor)
        refused = refused or RefusedBatches()
        self._streams = BatchStreams(catalog, self._encoder, instrument, refused)
        self._servicer = FeedServicer(catalog, self._streams, instrument.url)
        self._interceptor = CallInterceptor(self._admission, instrument.monitor)
        threads = limits.max_streams + limits.max_calls + MAX_HEALTH_CALLS + _SPARE_THREADS
        self._pool = _CallThreads(threads, "infeed-rpc")

    def open(
        self,
        address: Address,
        credentials: grpc.ServerCredentials | None = None,
        *,
        shares_port: bool = False,
    ) -> None:
        """Listens on the address; without `credentials`, nothing is encrypted. Raises `ConfigError`
        when the address cannot be bound."""
        if not shares_port:
            # C-core gives no reason, and replaces the Unix socket of a live server.
            address.require_free()
        self._server = grpc.server(
            self._pool,
            handlers=[self._servicer],
            interceptors=[self._interceptor],
            options=_options(self._limits, shares_port=shares_port),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(str(address))
            else:
                self.port = self._server.add_secure_port(str(address), credentials)
        except RuntimeError as error:
            text = f"cannot listen on {address}: {error}"
            raise ConfigError(text, address=str(address)) from None
        self._streams.is_protected = address.is_unix or credentials is not None
        if address.is_unix:
            path = address.host.removeprefix("unix:")
            self._streams.shared_memory = SharedMemory(path, self._budget)

    def start(self) -> None:
        self._server.start()

    def set_serving(self, serving: bool, pipeline: str = "") -> None:
        """Sets the health status of a pipeline, else of the server and the feed service. Health
        checks need no token, so if other calls do, they get no pipeline's status: it would reveal
        that the pipeline exists."""
        if not (self._requires_token and pipeline):
            for name in (pipeline,) if pipeline else ("", SERVICE):
                self._health.set_serving(name, serving)

    def stop(self, grace: float) -> None:
        """Refuses new calls, waits up to `grace` seconds for open streams, and ends the rest.
        Streams also announce the shutdown in a message: proxies do not forward GOAWAY."""
        self._health.enter_graceful_shutdown()
        self._admission.stopping = True
        if self._streams.shared_memory is not None:  # before a successor can take the path
            self._streams.shared_memory.stop()
        ended = self._server.stop(grace + 2 * _END_TIMEOUT_SECONDS)
        self._streams.drain()
        deadline = time.monotonic() + grace
        while self._admission.open_calls(STREAMS) and time.monotonic() < deadline:
            time.sleep(_DRAIN_POLL_SECONDS)
        self._streams.end()
        ended.wait(_END_TIMEOUT_SECONDS)
        self._server.stop(None).wait(_END_TIMEOUT_SECONDS)
        # Not all threads may end: one can wait for storage on behalf of a call that has ended.
        self._pool.shutdown(wait=False)
        self._encoder.close()


class _CallThreads(futures.ThreadPoolExecutor):
    """Threads for calls, one per call, started on demand."""

    def submit(self, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Queues a call. If no thread can be started, the call waits for a free one: the exception
        would end the thread that accepts calls."""
        try:
            return super().submit(*args, **kwargs)
        except RuntimeError as error:
            log.error("no thread can be started for a call: %s", error)
            return futures.Future()


def _options(limits: Limits, *, shares_port: bool) -> list[tuple[str, int]]:
    """Returns the channel arguments of C-core; times are in milliseconds."""
    seconds = {
        "grpc.keepalive_time_ms": SERVER_PING_INTERVAL_SECONDS,
        "grpc.keepalive_timeout_ms": SERVER_PING_TIMEOUT_SECONDS,
        "grpc.http2.ping_timeout_ms": SERVER_PING_TIMEOUT_SECONDS,
        # Clients ping during slow batches; after a busy time, a few pings may come early.
        "grpc.http2.min_ping_interval_without_data_ms": CLIENT_PING_INTERVAL_SECONDS / 2,
        "grpc.max_connection_idle_ms": _IDLE_SECONDS,
        "grpc.server_handshake_timeout_ms": _HANDSHAKE_TIMEOUT_SECONDS,
    }
    if limits.max_connection_age is not None:
        seconds["grpc.max_connection_age_ms"] = limits.max_connection_age
        seconds["grpc.max_connection_age_grace_ms"] = limits.max_connection_age_grace
    return [
        ("grpc.so_reuseport", int(shares_port)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_allowed_incoming_connections", max_connections()),
        ("grpc.max_concurrent_streams", _MAX_STREAMS_OF_CONNECTION),
        ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
        ("grpc.max_send_message_length", -1),
        *((name, round(1000 * value)) for name, value in seconds.items()),
    ]
