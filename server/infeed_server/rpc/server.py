"""The gRPC server: services, limits, health and reflection put together."""

from __future__ import annotations

from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from infeed.errors import ConfigError
from infeed.keepalive import SERVER_OPTIONS
from infeed_server.engines.monitor import Monitor
from infeed_server.rpc.servicer import SERVICE, FeedServicer
from infeed_server.service.catalog import Catalog

MAX_STREAMS = 256
"""Open streams. Each holds one thread of the pool, which makes threads only as they are needed."""

_RESERVE = 16
"""Threads beyond the streams, so that a health check is answered when all streams are taken."""

_MAX_REQUEST_BYTES = 64 << 10
"""The largest message that a client may send: its requests are a few dozen bytes each."""


class RpcServer:
    """A gRPC server that listens from the start and can be asked for its port."""

    def __init__(
        self, catalog: Catalog, monitor: Monitor, address: str, *, share_port: bool = False
    ) -> None:
        """Raises `ConfigError` when the address cannot be listened on."""
        self._health = health.HealthServicer()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(MAX_STREAMS + _RESERVE, "infeed-rpc"),
            options=[
                *SERVER_OPTIONS,
                ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", -1),
                # Or a second server on the same port would get half of the connections.
                ("grpc.so_reuseport", int(share_port)),
            ],
            maximum_concurrent_rpcs=MAX_STREAMS + _RESERVE,
        )
        self._server.add_generic_rpc_handlers((FeedServicer(catalog, monitor),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        self.port = _bind(self._server, address)

    def start(self) -> None:
        self._server.start()

    def set_serving(self, serving: bool) -> None:
        """What the health service answers, for the server as a whole and for the service."""
        status = health_pb2.HealthCheckResponse
        value = status.SERVING if serving else status.NOT_SERVING
        for name in ("", SERVICE):
            self._health.set(name, value)

    def stop(self, grace: float) -> None:
        """Takes no more calls and ends open ones after `grace` seconds."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()


def _bind(server: grpc.Server, address: str) -> int:
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if not port:
        unix = address.startswith("unix:")
        why = (
            "no socket can be made there"
            if unix
            else "the port is taken, or the address is not of this machine"
        )
        raise ConfigError(f"cannot listen on {address}: {why}", address=address)
    return port
