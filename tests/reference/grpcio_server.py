"""gRPC server on grpcio with infeed's servicer, to compare the package's own HTTP/2 server with.

It lacks what C-core does not offer or what a comparison does not need: limits per host, reload of
certificates, messages sent from the batch's memory (each is joined into one piece first).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from infeed.errors import AuthenticationError, ConfigError
from infeed_server.engines.monitor import Monitor
from infeed_server.observe.jobs import Jobs
from infeed_server.rpc.batch_encoder import BatchEncoder
from infeed_server.rpc.call import GrpcFrames, StatusError
from infeed_server.rpc.limits import Limits
from infeed_server.rpc.servicer import SERVICE, FeedServicer
from infeed_server.rpc.shutdown import Shutdown
from infeed_server.rpc.status import to_status_error
from infeed_server.rpc.trainer_log import TrainerLog
from infeed_server.runtime.certificate import TLSFiles
from infeed_server.serving.auth import AllowAll, Authenticator, Caller
from infeed_server.serving.catalog import Catalog

_PREFIX_BYTES = 5

_OPTIONS = (
    ("grpc.max_receive_message_length", 64 << 10),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
)


class GrpcioServer:
    """Has the constructor and methods of `RpcServer`, except that `tls` names the files."""

    def __init__(
        self,
        catalog: Catalog,
        monitor: Monitor,
        address: str,
        *,
        jobs: Jobs,
        tls: TLSFiles | None = None,
        authenticator: Authenticator | None = None,
        limits: Limits = Limits(),  # noqa: B008 - immutable
        **_: Any,
    ) -> None:
        self._encoder = BatchEncoder(monitor)
        self._health = health.HealthServicer()
        servicer = FeedServicer(catalog, self._encoder, monitor, Shutdown(), TrainerLog(), jobs)
        # grpcio does not end the threads of its pool.
        self._pool = futures.ThreadPoolExecutor(limits.streams, "infeed-rpc")
        self._server = grpc.server(
            self._pool,
            handlers=[_Handlers(servicer, authenticator or AllowAll())],
            options=_OPTIONS,
            maximum_concurrent_rpcs=limits.streams,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, reflection.SERVICE_NAME), self._server)
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, _credentials(tls))
        except RuntimeError as error:
            raise ConfigError(f"cannot listen on {address}: {error}", address=address) from None

    def start(self) -> None:
        self._server.start()

    def set_serving(self, serving: bool, reason: str = "", pipeline: str = "") -> None:
        """Sets the health status. `reason` is not sent."""
        kind = health_pb2.HealthCheckResponse
        for name in (pipeline,) if pipeline else ("", SERVICE):
            self._health.set(name, kind.SERVING if serving else kind.NOT_SERVING)

    def stop(self, grace: float) -> None:
        self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()
        self._pool.shutdown(wait=False)
        self._encoder.close()


class _Handlers(grpc.GenericRpcHandler):
    """Calls the servicer's handlers with grpcio's context in the form that they expect."""

    def __init__(self, servicer: FeedServicer, authenticator: Authenticator) -> None:
        self._servicer = servicer
        self._authenticator = authenticator

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        handler = self._servicer.service(handler_call_details)
        if handler is None:
            return None

        def stream(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
            call = self._authenticate(context)
            try:
                for frames in handler.stream_stream(requests, call):
                    yield from _messages(frames)
            except StatusError as error:
                _abort(context, error)

        def unary(message: bytes, context: Any) -> bytes:
            call = self._authenticate(context)
            try:
                return bytes(handler.response_serializer(handler.unary_unary(message, call)))
            except StatusError as error:
                _abort(context, error)

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)

    def _authenticate(self, context: Any) -> _Call:
        metadata = dict(context.invocation_metadata())
        try:
            return _Call(context, self._authenticator.authenticate(metadata.get("authorization")))
        except AuthenticationError as error:
            _abort(context, to_status_error(error))


class _Call:
    """The part of `ServerCall` that handlers use."""

    def __init__(self, context: Any, caller: Caller) -> None:
        self.caller = caller
        self.feed: Any = None
        """Set by the handler, for a log of trainers that this server does not have."""
        self._context = context

    def peer(self) -> str:
        return str(self._context.peer())

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return bool(self._context.add_callback(callback))


def _messages(frames: GrpcFrames) -> Iterator[bytes]:
    """Yields each message of some frames in one piece, as grpcio sends it."""
    buffers = iter(frames)
    for prefix in buffers:
        size = int.from_bytes(bytes(prefix)[1:_PREFIX_BYTES], "big")
        pieces = []
        while size:
            pieces.append(next(buffers))
            size -= len(pieces[-1])
        yield b"".join(pieces)


def _abort(context: Any, error: StatusError) -> NoReturn:
    context.set_trailing_metadata(tuple(error.trailers))
    context.abort(error.code, error.details)
    raise AssertionError("abort() did not raise")


def _credentials(files: TLSFiles) -> grpc.ServerCredentials:
    ca = Path(files.client_ca).read_bytes() if files.client_ca else None
    cert = Path(files.cert).read_bytes()
    key = Path(files.key).read_bytes() if files.key else cert
    return grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=ca is not None)


__all__ = ["GrpcioServer"]
