"""Client transport on grpcio, to compare the package's own HTTP/2 client with.

A feed takes it in place of its own: `infeed.connect(target, name, transport=GrpcioTransport(...))`.
It lacks what C-core does not offer: reading into the batch's memory (each message is copied once
more), and the notice of a server's drain before the stream ends.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from infeed.errors import InfeedError, ProtocolError, ServerUnavailableError
from infeed.http2.keepalive import CLIENT_PING_INTERVAL_SECONDS, CLIENT_PING_TIMEOUT_SECONDS
from infeed.http2.target import host_name
from infeed.http2.tls_config import TLS
from infeed.rpc.call import MAX_MESSAGE_BYTES
from infeed.rpc.channel import GrpcTransport
from infeed.rpc.credentials import Credentials
from infeed.rpc.status import map_status

_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", round(1000 * CLIENT_PING_INTERVAL_SECONDS)),
    ("grpc.keepalive_timeout_ms", round(1000 * CLIENT_PING_TIMEOUT_SECONDS)),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each call, as on the own stack
    ("grpc.enable_retries", 0),
    ("grpc.primary_user_agent", "infeed"),
)

_HEADERS = {":status": "200", "content-type": "application/grpc"}


class GrpcioCall:
    """A call on a channel of its own. Connects at the first `next`."""

    def __init__(
        self,
        address: str,
        name: str,
        method: str,
        requests: Iterator[Any],
        timeout: float | None,
        credentials: Credentials,
        on_closed: Callable[[GrpcioCall], None],
    ) -> None:
        """`name` is the address as the user wrote it; the certificate must be valid for it."""
        self.server = address
        self._name = name
        self._method = method
        self._requests = requests
        self._timeout = timeout
        self._credentials = credentials
        self._on_closed = on_closed
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._responses: Any = None
        self._is_cancelled = False
        self._unread = memoryview(b"")

    def next(self) -> int | None:
        """Returns the size of the next message; None at the end of the stream."""
        try:
            if self._responses is None:
                self._start()
            message = next(self._responses, None)
        except grpc.RpcError as error:
            raise _map_error(error, self.server) from error
        if message is None:
            return None
        self._unread = memoryview(message)
        return len(message)

    def read_into(self, memory: memoryview) -> None:
        """Copies the next bytes of the message."""
        size = len(memory)
        if size > len(self._unread):
            missing = size - len(self._unread)
            raise ProtocolError(f"{self.server} sent a message that ends {missing} bytes early")
        memory[:] = self._unread[:size]
        self._unread = self._unread[size:]

    def cancel(self) -> None:
        """Ends the call at once."""
        with self._lock:
            self._is_cancelled = True
            responses = self._responses
        if responses is not None:
            responses.cancel()

    def close(self) -> None:
        """Ends the call and closes its channel."""
        self.cancel()
        if self._channel is not None:
            self._channel.close()
        self._on_closed(self)

    def _start(self) -> None:
        metadata = tuple(self._credentials.headers())
        channel = _channel(self.server, self._name, self._credentials)
        with self._lock:
            if self._is_cancelled:
                channel.close()
                raise ServerUnavailableError(f"the call to {self.server} was cancelled")
            self._channel = channel
            call: Any = channel.stream_stream(
                self._method, request_serializer=lambda request: request.SerializeToString()
            )
            self._responses = call(self._requests, timeout=self._timeout, metadata=metadata)


class GrpcioTransport(GrpcTransport):
    """Targets, credentials and errors of `GrpcTransport` over grpcio's channels."""

    def _new_call(
        self,
        address: str,
        method: str,
        requests: Iterator[Any],
        *,
        timeout: float | None = None,
        connect_timeout: float | None = None,
        on_draining: Callable[[], None] = lambda: None,
    ) -> Any:
        del on_draining, connect_timeout  # C-core has no such events and limits
        with self._lock:
            if self._closed:
                raise ServerUnavailableError(f"the connection to {self.target} was closed")
            call: Any = GrpcioCall(
                address,
                self._names.get(address) or address,
                f"/infeed.v1.FeedService/{method}",
                requests,
                timeout,
                self._credentials,
                self._forget,  # type: ignore[arg-type]
            )
            self._calls.add(call)
            return call


def _channel(address: str, name: str, credentials: Credentials) -> grpc.Channel:
    tls = TLS() if credentials.tls is True else credentials.tls or None
    if tls is None:
        return grpc.insecure_channel(address, options=_OPTIONS)
    key = tls.key or tls.cert
    host = tls.server_name or host_name(name).rstrip(".")
    return grpc.secure_channel(
        address,
        grpc.ssl_channel_credentials(
            root_certificates=Path(tls.ca).read_bytes() if tls.ca else None,
            private_key=Path(key).read_bytes() if key else None,
            certificate_chain=Path(tls.cert).read_bytes() if tls.cert else None,
        ),
        options=(*_OPTIONS, ("grpc.ssl_target_name_override", host)),
    )


def _map_error(error: Any, server: str) -> InfeedError:
    trailers = {"grpc-status": str(error.code().value[0]), "grpc-message": error.details() or ""}
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            trailers[key] = b64encode(value).decode()
    mapped = map_status(_HEADERS, trailers, server)
    return mapped or ServerUnavailableError(f"no server at {server}: {error}", target=server)


__all__ = ["GrpcioTransport"]
