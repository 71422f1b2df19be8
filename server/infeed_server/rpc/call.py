"""A gRPC call on an HTTP/2 stream: length-prefixed messages, and a status at the end."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.parse
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

import grpc

from infeed_server.http2.protocol import Headers
from infeed_server.http2.socket import Buffer
from infeed_server.http2.stream import Stream, StreamClosedError
from infeed_server.rpc import compression
from infeed_server.rpc.status_error import StatusError
from infeed_server.rpc.trainer_log import FeedProgress

GrpcFrames: TypeAlias = "list[Buffer]"
"""Messages with their prefixes, in buffers that are not copied."""

_MAX_REQUEST_BYTES = 64 << 10
"""The largest message that a client may send; requests have a few dozen bytes."""

_MAX_LOGGED_METHOD_CHARS = 200
"""Length of a method's name in the log; the client chooses it."""

Metadata: TypeAlias = "Sequence[tuple[str, Any]]"
"""Names and values: text, or bytes for names that end with `-bin`."""

_PREFIX_BYTES = 5
_RESPONSE_HEADERS: Headers = [
    (":status", "200"),
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", compression.ACCEPTED),
]


def grpc_frames(*messages: Sequence[Buffer]) -> GrpcFrames:
    """Returns messages, each given as its buffers, with their prefixes."""
    frames: list[Buffer] = []
    for message in messages:
        frames.append(b"\0" + sum(map(len, message)).to_bytes(4, "big"))
        frames.extend(message)
    return frames


class CallCancelledError(grpc.RpcError):
    """Raised in a handler when the client has cancelled the call, or is lost."""


class ServerCall:
    """One call. It has those methods of gRPC's servicer context that gRPC's own servicers use."""

    def __init__(self, stream: Stream) -> None:
        self.method = stream.headers.get(":path", "")
        self.caller: Any = None
        """Set by `Admission`, for handlers."""
        self.feed: FeedProgress | None = None
        """Of a stream of batches; set by its handler, for the log."""
        self.status = grpc.StatusCode.CANCELLED
        """The status that was sent; CANCELLED for none."""
        self.began_at = time.monotonic()
        self.sent_bytes = self.received_bytes = 0
        """Messages with their prefixes."""
        self._stream = stream
        self._buffer = bytearray()
        self._has_request = False
        self._headers_sent = False
        self._ending = threading.Lock()  # a timer may end the call while its handler answers
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailers: Metadata = ()

    # For handlers.

    def peer(self) -> str:
        return self._stream.peer

    @property
    def log_fields(self) -> dict[str, Any]:
        """The keys that lines of the log about this call have in JSON."""
        if self.feed is not None:
            return self.feed.fields
        return {"peer": self.peer(), "method": self.method[:_MAX_LOGGED_METHOD_CHARS]}

    @property
    def authorization(self) -> str | None:
        """The authorization header."""
        return self._stream.headers.get("authorization")

    @property
    def ok(self) -> bool:
        return self._code is grpc.StatusCode.OK

    def is_active(self) -> bool:
        return not self._stream.closed

    @property
    def reset_by_peer(self) -> bool:
        """Whether the client ended the call, rather than its connection."""
        return self._stream.reset_by_peer

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Registers a call for the end of this one; returns False when it has ended already."""
        return self._stream.add_close_callback(callback)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        self._trailers = metadata

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise StatusError(code, details)

    # For the router.

    @property
    def headers(self) -> dict[str, str]:
        return self._stream.headers

    @property
    def has_all_headers(self) -> bool:
        return self._stream.has_all_headers

    @property
    def encrypted(self) -> bool:
        return self._stream.encrypted

    @property
    def client_certificate(self) -> bytes | None:
        return self._stream.client_certificate

    def admit(self, *, authenticated: bool) -> None:
        """Marks a call that is going to be handled."""
        self._stream.admit(authenticated=authenticated)

    def end_after(self, seconds: float, problem: str) -> None:
        """Ends the call with DEADLINE_EXCEEDED unless it has ended by then.

        To be called by the thread that opens the stream, as `require_request`.
        """
        self._stream.call_after(seconds, lambda: self._time_out(problem))

    def require_request(self, seconds: float, on_missing: Callable[[], None]) -> None:
        """Ends the call, after calling `on_missing`, unless it has a message by then."""

        def check() -> None:
            if not self._has_request:
                on_missing()
                self._time_out(f"no request within {seconds:g} s")

        self._stream.call_after(seconds, check)

    def respond(self, headers: Headers) -> None:
        """Ends the call with an HTTP response without a body."""
        self._stream.send_headers([*headers, ("content-length", "0")], end=True)

    def reset(self) -> None:
        """Ends the call without a response."""
        self._stream.reset()

    def messages(self, timeout: float | None = None) -> Iterator[bytes]:
        """Yields the client's messages. Raises `CallCancelledError` and `StatusError`.

        `timeout` bounds the whole request, in seconds: it may arrive byte by byte.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._fill_buffer(_PREFIX_BYTES, deadline):
            compressed, size = self._buffer[0], int.from_bytes(self._buffer[1:_PREFIX_BYTES], "big")
            if size > _MAX_REQUEST_BYTES:
                raise compression.too_large(size, _MAX_REQUEST_BYTES)
            end = _PREFIX_BYTES + size
            if not self._fill_buffer(end, deadline):
                return
            message = bytes(self._buffer[_PREFIX_BYTES:end])
            del self._buffer[:end]
            self._has_request = True
            if compressed:
                encoding = self.headers.get("grpc-encoding")
                message = compression.decompress(message, encoding, _MAX_REQUEST_BYTES)
            yield message

    def send(self, frames: GrpcFrames) -> None:
        """Sends messages without copies."""
        try:
            with self._ending:
                if not self._headers_sent:
                    self._headers_sent = True
                    self._stream.send_headers(_RESPONSE_HEADERS)
            self._stream.send(frames)
            self.sent_bytes += sum(memoryview(frame).nbytes for frame in frames)
        except StreamClosedError:
            raise CallCancelledError from None

    def end(self, error: StatusError | None = None) -> None:
        """Sends the status: that of `error`, or what the handler has set, which is OK at first."""
        if error is None and not self.ok:
            error = StatusError(self._code, self._details)
        code, details = (error.code, error.details) if error else (self._code, self._details)
        trailers = [("grpc-status", str(code.value[0]))]
        if details:
            trailers.append(("grpc-message", _percent_encode(details)))
        metadata = error.trailers if error else self._trailers
        trailers += [_encode_metadata(*item) for item in metadata]
        try:
            with self._ending:
                headers = [] if self._headers_sent else _RESPONSE_HEADERS
                self._stream.send_headers([*headers, *trailers], end=True)
                self.status = code
        except StreamClosedError:
            raise CallCancelledError from None

    def _time_out(self, problem: str) -> None:
        with contextlib.suppress(CallCancelledError):
            self.end(StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, problem))

    def _fill_buffer(self, count: int, deadline: float | None) -> bool:
        """Receives until the buffer has `count` bytes; returns False at the request's end."""
        while len(self._buffer) < count:
            data = self._receive(deadline)
            if data is None:
                if self._buffer:
                    raise StatusError(grpc.StatusCode.INTERNAL, "truncated message")
                return False
            self._buffer += data
            self.received_bytes += len(data)
        return True

    def _receive(self, deadline: float | None) -> bytes | None:
        left = None if deadline is None else deadline - time.monotonic()
        try:
            if left is not None and left <= 0:  # data may be there all the time, and complete none
                raise TimeoutError
            return self._stream.receive(left)
        except StreamClosedError:
            raise CallCancelledError from None
        except TimeoutError:
            problem = "the request did not end in time"
            raise StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, problem) from None


_UNRESERVED = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""Characters that grpc-message contains unescaped."""


def _percent_encode(text: str) -> str:
    """Returns text for grpc-message. Spaces at its ends are escaped too: HTTP strips them."""
    quoted = urllib.parse.quote(text, safe=_UNRESERVED, errors="replace")
    inner = quoted.strip(" ")
    if inner == quoted:
        return quoted
    begin = quoted.index(inner)
    return "%20" * begin + inner + "%20" * (len(quoted) - begin - len(inner))


def _encode_metadata(key: str, value: Any) -> tuple[str, str]:
    if key.endswith("-bin"):
        return key, b64encode(value).decode().rstrip("=")
    return key, value


__all__ = ["CallCancelledError", "GrpcFrames", "ServerCall", "StatusError", "grpc_frames"]
