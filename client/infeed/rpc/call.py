"""gRPC calls: length-prefixed messages, on one HTTP/2 request each."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import xxhash
from google.protobuf.message import DecodeError

from infeed.http2.connection import Headers, Http2Request
from infeed.http2.socket import CONNECT_TIMEOUT_SECONDS, ConnectionLostError
from infeed.http2.target import authority
from infeed.http2.tls_config import TURN_ON
from infeed.rpc.credentials import Credentials
from infeed.rpc.status import (
    CONNECTION_ERRORS,
    map_connection_error,
    map_http_error,
    map_status,
    tls_remedy,
    was_closed,
)
from infeed.shared.errors import (
    AuthenticationError,
    InfeedError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.transport import Call

_PREFIX_BYTES = 5
"""The prefix of a message: a compression flag and its length."""

_JOIN_TIMEOUT_SECONDS = 1.0

NO_CREDENTIALS = Credentials()

MAX_MESSAGE_BYTES = 1 << 26
"""A longer message is refused as corrupt: batches travel in chunks of 1 MiB."""

_CHECKSUM_FIELD_BYTES = 9
"""Bytes of the field `checksum` and its tag, which end a message that has one."""

_MAX_TIMEOUT_MILLISECONDS = 10**8 - 1
"""The largest number in `grpc-timeout`, more than a day."""


class GrpcCall:
    """A call of a method. Connects at the first `next`; sends requests on a thread of its own."""

    def __init__(
        self,
        address: str,
        method: str,
        requests: Iterator[Any],
        credentials: Credentials = NO_CREDENTIALS,
        *,
        timeout: float | None = None,
        connect_timeout: float | None = None,
        on_draining: Callable[[], None] = lambda: None,
    ) -> None:
        """`timeout` bounds the whole call, in seconds, `connect_timeout` the wait for the peer's
        first frame. `on_draining` is called when the server announces its shutdown."""
        self.server = address
        self._method = method
        self._requests = requests
        self._timeout = timeout
        self._connect_timeout = min(
            CONNECT_TIMEOUT_SECONDS if connect_timeout is None else connect_timeout,
            math.inf if timeout is None else timeout,
        )
        self._credentials = credentials
        self._socket = credentials.create_socket(address)
        deadline = None if timeout is None else time.monotonic() + timeout
        self._http2 = Http2Request(self._socket, deadline, on_draining)
        self._sender: threading.Thread | None = None
        self._requests_error: BaseException | None = None
        """Raised by the iterator of the requests."""
        self._message_left = 0

    def next(self) -> int | None:
        with self._map_errors():
            if self._sender is None:
                self._start()
            prefix = memoryview(bytearray(_PREFIX_BYTES))
            if not self._read_exactly(prefix):
                if error := self._status_error():
                    raise error
                return None
            if error := map_http_error(self._http2.headers, self.server):
                raise error  # the data is a proxy's page, not a message
        size = int.from_bytes(prefix[1:], "big")
        if prefix[0]:
            raise ProtocolError(f"{self.server} sent an unsupported compressed message")
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"{self.server} sent a message of {size} bytes; the limit is {MAX_MESSAGE_BYTES}"
            )
        self._message_left = size
        return size

    def read_into(self, memory: memoryview) -> None:
        if (missing := len(memory) - self._message_left) > 0:
            raise ProtocolError(f"{self.server} sent a message that ends {missing} bytes early")
        with self._map_errors():
            if memory and not self._read_exactly(memory):
                raise self._truncation_error()
        self._message_left -= len(memory)

    def cancel(self) -> None:
        # The socket first: it wakes a blocked send, which holds the lock that `cancel` waits for.
        self._socket.abort()
        self._http2.cancel()

    def close(self) -> None:
        self.cancel()
        if self._sender is not None:
            # It must not send to another file that gets the socket's number.
            self._sender.join(_JOIN_TIMEOUT_SECONDS)
        self._socket.close()

    def _start(self) -> None:
        begin_by = time.monotonic() + self._connect_timeout
        self._socket.open(self._connect_timeout)
        self._http2.send_headers(self._headers(), begin_by)
        self._sender = threading.Thread(
            target=self._send_requests, name="infeed-requests", daemon=True
        )
        self._sender.start()

    def _headers(self) -> Headers:
        headers: Headers = [
            (":method", "POST"),
            (":scheme", self._credentials.scheme),
            (":path", self._method),
            (":authority", authority(self._credentials.name or self.server)),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "infeed"),
            *self._credentials.headers(),
        ]
        if self._timeout is not None:
            milliseconds = min(max(1, round(self._timeout * 1000)), _MAX_TIMEOUT_MILLISECONDS)
            headers.append(("grpc-timeout", f"{milliseconds}m"))
        return headers

    def _send_requests(self) -> None:
        try:
            for request in self._requests:
                message = request.SerializeToString()
                self._http2.send_data(b"\0" + len(message).to_bytes(4, "big") + message)
            self._http2.send_data(b"", end=True)
        except (ConnectionLostError, OSError):
            pass  # the reading thread fails with it too
        except BaseException as error:  # noqa: BLE001 - or the reader would wait forever
            self._requests_error = error
            self._socket.abort()

    def _read_exactly(self, memory: memoryview) -> bool:
        """Fills the memory; returns False when the stream has ended before the first byte."""
        rest = memory
        while rest:
            count = self._http2.read_data(rest)
            if not count:
                if len(rest) == len(memory):
                    return False
                raise self._truncation_error()
            rest = rest[count:]
        return True

    def _status_error(self) -> InfeedError | None:
        return map_status(self._http2.headers, self._http2.trailers, self.server)

    def _truncation_error(self) -> InfeedError:
        return self._status_error() or ProtocolError(f"{self.server} sent a truncated message")

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        """Maps the connection's exceptions to an `InfeedError`, or to what the requests raised."""
        try:
            yield
        except InfeedError:  # some are an OSError too
            raise
        except CONNECTION_ERRORS as error:
            remedy = ""
            if not self._http2.has_begun:
                # A feed's streams follow a call with a timeout, which has found out.
                if self._timeout and was_closed(error) and self._credentials.lack_tls(self.server):
                    raise AuthenticationError(
                        f"{self.server} requires TLS; {TURN_ON}", target=self.server
                    ) from None
                remedy = tls_remedy(self._credentials.tls_options)
            mapped = map_connection_error(error, self.server, remedy)
            if self._requests_error is not None and isinstance(mapped, ServerUnavailableError):
                raise self._requests_error from None
            raise mapped from None  # its text has the cause


def read_single_response(call: Call, response: Any) -> Any:
    """Returns the only message of a call, after the call has ended; `response` is its class."""
    size = call.next()
    if size is None:
        raise ProtocolError(f"{call.server} sent no response message")
    message = bytearray(size)
    call.read_into(memoryview(message))
    if call.next() is not None:
        raise ProtocolError(f"{call.server} sent more than one response message")
    try:
        parsed = response.FromString(bytes(message))
    except (DecodeError, UnicodeDecodeError) as error:  # pure-Python protobuf raises the second
        raise ProtocolError(f"{call.server} sent a message that cannot be parsed") from error
    expected = getattr(parsed, "checksum", 0)  # an older server sends none
    checked = memoryview(message)[:-_CHECKSUM_FIELD_BYTES]
    if expected and expected != xxhash.xxh3_64_intdigest(checked):
        raise ProtocolError(f"{call.server} sent a message that does not match its checksum")
    return parsed
