"""One HTTP/2 stream: a request and its response."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from h2.errors import ErrorCodes

from infeed_server.http2.protocol import Headers
from infeed_server.http2.socket import Buffer
from infeed_server.http2.timers import Timer

log = logging.getLogger(__name__)


class StreamClosedError(Exception):
    """The stream was reset, or its connection is lost."""


class StreamConnection(Protocol):
    """The part of a connection that its streams use."""

    peer: str

    @property
    def encrypted(self) -> bool: ...

    @property
    def client_certificate(self) -> bytes | None: ...

    def admit(self, stream: Stream, *, authenticated: bool) -> None: ...

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def acknowledge_data(self, stream: Stream, count: int) -> None: ...

    def send_headers(self, stream: Stream, headers: Headers, *, end: bool) -> None: ...

    def send_data(self, stream: Stream, buffers: Sequence[Buffer]) -> None: ...

    def reset_stream(self, stream: Stream, code: int) -> None: ...


class Stream:
    """One thread receives and one sends; `StreamClosedError` ends both."""

    def __init__(
        self,
        connection: StreamConnection,
        stream_id: int,
        headers: dict[str, str],
        has_all_headers: bool = True,
    ) -> None:
        self.headers = headers
        """The request's headers and pseudo-headers, names in lower case."""
        self.has_all_headers = has_all_headers
        """Whether no header was left out for their size."""
        self.stream_id = stream_id
        self.reset_by_peer = False
        """Whether the peer has ended the stream itself."""
        self._connection = connection
        self._changed = threading.Condition()
        self._received = bytearray()
        self._unacknowledged = 0  # flow-controlled bytes: the received data and its padding
        self._request_ended = False
        self._closed = False
        self._close_callbacks: list[Callable[[], None]] = []

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def encrypted(self) -> bool:
        return self._connection.encrypted

    @property
    def client_certificate(self) -> bytes | None:
        return self._connection.client_certificate

    def admit(self, *, authenticated: bool) -> None:
        """Marks a call that is going to be answered, so that the connection may stay open.

        `authenticated` is False for one that any peer may make, which entitles to little.
        """
        self._connection.admit(self, authenticated=authenticated)

    def call_after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Calls the function on the reading thread, unless the stream closes before.

        Only the reading thread may call this.
        """
        timer = self._connection.call_after(seconds, callback)
        if not self.add_close_callback(timer.cancel):
            timer.cancel()

    @property
    def closed(self) -> bool:
        return self._closed

    def receive(self, timeout: float | None = None) -> bytes | None:
        """Waits for data of the request and returns it; None at its end. Raises `TimeoutError`.

        Flow control stops the peer while no thread receives.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._unacknowledged or self._request_ended or self._closed, timeout
            ):
                raise TimeoutError(f"the request did not continue or end within {timeout:g} s")
            if self._closed:
                raise StreamClosedError
            if not self._unacknowledged:
                return None
            data, count = bytes(self._received), self._unacknowledged
            self._received.clear()
            self._unacknowledged = 0
        self._connection.acknowledge_data(self, count)
        return data

    def send_headers(self, headers: Headers, *, end: bool = False) -> None:
        self._connection.send_headers(self, headers, end=end)

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Sends buffers in order, without copies; they may change once this returns."""
        self._connection.send_data(self, buffers)

    def reset(self, code: int = ErrorCodes.INTERNAL_ERROR) -> None:
        """Closes the stream with an HTTP/2 error code instead of a response."""
        self._connection.reset_stream(self, code)

    def add_close_callback(self, callback: Callable[[], None]) -> bool:
        """Registers a call for when the stream closes; returns False when it is closed already."""
        with self._changed:
            if not self._closed:
                self._close_callbacks.append(callback)
            return not self._closed

    def on_data(self, data: bytes, flow_controlled_length: int) -> bool:
        """Stores data from the peer; returns False when the stream is closed."""
        with self._changed:
            if self._closed:
                return False
            self._received += data
            self._unacknowledged += flow_controlled_length
            self._changed.notify_all()
            return True

    def on_request_end(self) -> None:
        """Marks the end of the request's data."""
        with self._changed:
            self._request_ended = True
            self._changed.notify_all()

    def on_close(self) -> int:
        """Closes the stream; returns how many received bytes were not acknowledged."""
        with self._changed:
            if self._closed:
                return 0
            self._closed = True
            callbacks, self._close_callbacks = self._close_callbacks, []
            count, self._unacknowledged = self._unacknowledged, 0
            self._received.clear()
            self._changed.notify_all()
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the connection and its other streams continue
                log.exception("a stream's close callback failed")
        return count
