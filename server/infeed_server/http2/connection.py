"""A client's HTTP/2 connection.

One thread reads frames, and one thread for each stream sends its response. h2 handles the protocol,
except for the DATA frames that are sent: nearly all bytes are in these, and the kernel copies them
to the socket from the memory of the batch.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import h2.events
import h2.exceptions
from h2.errors import ErrorCodes

from infeed_server.http2 import refusals
from infeed_server.http2.h2_internals import headers_problem
from infeed_server.http2.lifetime import Lifetime, LifetimeTimers
from infeed_server.http2.protocol import (
    MAX_CONCURRENT_STREAMS,
    BufferQueue,
    Headers,
    Http2Protocol,
    Http2ProtocolError,
    data_frames,
    decode_headers,
)
from infeed_server.http2.receiver import Receiver
from infeed_server.http2.socket import Buffer, ServerSocket
from infeed_server.http2.stream import Stream, StreamClosedError
from infeed_server.http2.timers import Timer, Timers

log = logging.getLogger(__name__)

_MAX_SEND_BYTES = 1 << 26
"""Bytes that one stream sends before other streams of the connection get their turn."""


class Connection:
    """Reads in `run`, on one thread; responses are sent by the threads of the streams."""

    def __init__(
        self,
        sock: ServerSocket,
        peer: str,
        on_stream: Callable[[Stream], None],
        *,
        lifetime: Lifetime = Lifetime(),  # noqa: B008 - immutable
        on_refused: refusals.OnRefused = refusals.ignore,
        pace: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`on_stream` is called with each new stream, on the reading thread; it must not block.

        `pace` is called there too, between frames, with the cost of those before that no sent data
        entitled the peer to; it may wait.
        """
        self.peer = peer
        self._socket = sock
        self._on_stream = on_stream
        self._protocol = Http2Protocol()
        self._streams: dict[int, Stream] = {}
        self._changed = threading.Condition()  # guards the protocol and the streams
        self._send_lock = threading.Lock()  # acquired before `_changed` where both are
        self._ready = False
        self._draining = False
        self._on_refused = on_refused
        self._pace = pace
        self._timers = Timers()
        self._lifetime = LifetimeTimers(lifetime, self._timers, self.drain)
        self._receiver = Receiver(sock, self._timers, self._ping, self._send_lock.locked)

    def run(self) -> None:
        """Reads until the connection ends, then closes its streams and the socket."""
        try:
            self._socket.handshake()
            self._ready = True
            self._lifetime.start()
            self._flush()
            while data := self._receiver.receive():
                self._process(data)
                self._flush()
        except refusals.RefusedPeerError as error:
            fields = {"peer": self.peer}
            log.info("%s was refused: %s", self.peer, error, extra={"fields": fields})
            self._on_refused(error.reason)
        except OSError as error:
            log.debug("%s: %s", self.peer, error)
        finally:
            self._socket.abort()
            with self._changed:
                streams = list(self._streams.values())
            for stream in streams:
                self._close_stream(stream)
            with self._send_lock:  # no thread may be sending
                self._socket.close()

    @property
    def encrypted(self) -> bool:
        return self._socket.encrypted

    @property
    def client_certificate(self) -> bytes | None:
        """The certificate that the peer has proved to own, in DER."""
        return self._socket.client_certificate

    def drain(self) -> None:
        """Refuses new streams; open streams continue. Does not block."""
        with self._changed:
            if self._draining:
                return
            self._draining = True
            self._protocol.go_away()
        if self._socket.is_writable():  # else the GOAWAY precedes the next frames that are sent
            with contextlib.suppress(OSError):
                self._flush()

    def abort(self) -> None:
        """Ends the connection at once, from any thread."""
        self._socket.abort()

    # For streams.

    def admit(self, stream: Stream, *, authenticated: bool) -> None:
        with self._changed:
            if not stream.closed:
                self._protocol.admit(stream.stream_id, authenticated=authenticated)
        self._lifetime.on_admitted()

    def call_after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._timers.after(seconds, callback)

    def acknowledge_data(self, stream: Stream, count: int) -> None:
        with self._map_errors():
            with self._changed:
                self._protocol.acknowledge_data(stream.stream_id, count)
            self._flush()

    def send_headers(self, stream: Stream, headers: Headers, *, end: bool) -> None:
        with self._map_errors():
            with self._changed:
                self._require_open(stream)
                self._protocol.send_headers(stream.stream_id, headers, end=end)
                if end:  # from here on, no other thread sends data on it
                    del self._streams[stream.stream_id]
            try:
                self._flush()
            finally:
                if end:
                    self._close_stream(stream)

    def send_data(self, stream: Stream, buffers: Sequence[Buffer]) -> None:
        unsent = BufferQueue(buffers)
        with self._map_errors():
            while unsent.size:
                self._wait_for_send_window(stream)
                with self._send_lock:
                    self._socket.send(self._next_frames(stream, unsent))
                self._flush()  # frames that other threads left to this one meanwhile

    def reset_stream(self, stream: Stream, code: int) -> None:
        with self._changed:
            if stream.closed:
                return
            self._protocol.reset_stream(stream.stream_id, code)
        with contextlib.suppress(OSError):
            self._flush()
        self._close_stream(stream)

    def _wait_for_send_window(self, stream: Stream) -> None:
        with self._changed:
            while self._is_open(stream) and not self._protocol.send_window(stream.stream_id):
                self._changed.wait()
            self._require_open(stream)

    def _is_open(self, stream: Stream) -> bool:
        return stream.stream_id in self._streams

    def _require_open(self, stream: Stream) -> None:
        if not self._is_open(stream):
            raise StreamClosedError

    def _next_frames(self, stream: Stream, unsent: BufferQueue) -> list[Buffer]:
        """Returns h2's frames, then DATA frames that fit the send window."""
        with self._changed:
            control_frames = self._protocol.take_unsent()
            limit = min(unsent.size, _MAX_SEND_BYTES) if self._is_open(stream) else 0
            count = self._protocol.reserve(stream.stream_id, limit, unsent.size)
            max_frame_size = self._protocol.max_frame_size
        return [control_frames, *data_frames(stream.stream_id, unsent, count, max_frame_size)]

    def _flush(self) -> None:
        """Sends h2's frames, or leaves them to the thread that is sending."""
        while self._ready:
            with self._changed:
                if not self._protocol.unsent_bytes:
                    return
            if not self._send_lock.acquire(blocking=False):
                return
            try:
                with self._changed:
                    control_frames = self._protocol.take_unsent()
                self._socket.send([control_frames])
            except OSError:
                self._socket.abort()  # part of a frame may be sent: no other can follow it
                raise
            finally:
                self._send_lock.release()

    # From the peer.

    def _ping(self) -> None:
        with self._changed:
            self._protocol.ping()
        self._flush()

    def _process(self, data: bytes) -> None:
        more = True
        while more:
            try:
                with self._changed:
                    events = self._protocol.receive(data)
                    more, data = self._protocol.is_paused, b""
                    unearned = self._protocol.take_unearned()
                    self._changed.notify_all()  # send windows may have grown
            except Http2ProtocolError:
                self._flush()
                raise
            for event in events:
                self._handle(event)
            self._pace(unearned)

    def _handle(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._open_stream(event)
            return
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.DataReceived):
            count = event.flow_controlled_length
            if stream is None or not stream.on_data(event.data, count):
                with self._changed:
                    self._protocol.acknowledge_data(event.stream_id, count)
        elif stream is None:
            return
        elif isinstance(event, h2.events.StreamReset):
            stream.reset_by_peer = True
            self._close_stream(stream)
        elif isinstance(event, h2.events.StreamEnded):
            stream.on_request_end()

    def _open_stream(self, event: h2.events.RequestReceived) -> None:
        stream = Stream(self, event.stream_id, *decode_headers(event.headers))
        problem = headers_problem(event.headers)
        with self._changed:
            is_full = len(self._streams) >= MAX_CONCURRENT_STREAMS
            accepted = not (problem or is_full or self._draining)
            if accepted:
                self._streams[event.stream_id] = stream
                self._lifetime.on_streams(len(self._streams))
            else:
                code = ErrorCodes.PROTOCOL_ERROR if problem else ErrorCodes.REFUSED_STREAM
                self._protocol.reset_stream(event.stream_id, code)
        if accepted:
            self._on_stream(stream)
        elif problem or is_full:
            log.debug("%s: a stream was refused: %s", self.peer, problem or "too many are open")
            self._on_refused("headers" if problem else "streams")

    def _close_stream(self, stream: Stream) -> None:
        with self._changed:
            self._streams.pop(stream.stream_id, None)
            self._protocol.forget(stream.stream_id)
            self._lifetime.on_streams(len(self._streams))
        unacknowledged = stream.on_close()
        with self._changed:
            self._protocol.acknowledge_data(stream.stream_id, unacknowledged)
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._flush()

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        """Raises `StreamClosedError` for errors of the connection and of the stream."""
        try:
            yield
        except OSError as error:
            self._socket.abort()
            raise StreamClosedError from error
        except h2.exceptions.H2Error as error:
            # The peer has reset the stream; the reading thread is about to close it.
            raise StreamClosedError from error
