"""One peer's HTTP/2 connection.

h2 keeps the rules of the protocol. Only DATA frames that are sent, which carry nearly all bytes,
pass it by: they go from the memory where a batch lies to the socket, copied once, by the kernel.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import h2.events
import h2.exceptions

from infeed.keepalive import SERVER_PATIENCE_SECONDS, SERVER_PING_SECONDS
from infeed_server.http2 import frames
from infeed_server.http2.machine import BrokenError, Machine
from infeed_server.http2.stream import GoneError, Headers, Stream
from infeed_server.http2.wire import Piece, RefusedError, Wire

log = logging.getLogger(__name__)

_MAX_UNSENT_BYTES = 1 << 20
"""Answers to pings and settings that a peer may leave unread."""

_MAX_RESETS = 1000
_RESETS_SECONDS = 60.0
"""So many streams may a peer open and reset in that time."""

_SEND_BYTES = 1 << 26
"""The most that goes out before another stream of the connection has its turn."""

_REFUSED_STREAM = 7


class Connection:
    """`run` reads, in a thread of its own; streams are answered by others."""

    def __init__(self, wire: Wire, peer: str, accept: Callable[[Stream], None]) -> None:
        """`accept` is called with each new stream, by the thread that reads; it must not wait."""
        self.peer = peer
        self._wire = wire
        self._accept = accept
        self._machine = Machine()
        self._streams: dict[int, Stream] = {}
        self._changed = threading.Condition()  # holds for the machine and the streams
        self._sending = threading.Lock()  # taken before `_changed` where both are
        self._opened = False
        self._draining = False
        self._resets = 0
        self._resets_since = 0.0

    def run(self) -> None:
        """Reads until the connection ends; frees everything."""
        try:
            self._wire.open()
            self._opened = True
            self._flush()
            while data := self._receive():
                self._take_in(data)
                self._flush()
        except RefusedError as error:
            log.info("%s was refused: %s", self.peer, error)
        except OSError as error:
            log.debug("%s: %s", self.peer, error)
        finally:
            self._wire.cut()
            with self._changed:
                streams = list(self._streams.values())
            for stream in streams:
                self._end(stream)
            with self._sending:  # whoever sends has met the cut
                self._wire.close()

    @property
    def secure(self) -> bool:
        return self._wire.secure

    def drain(self) -> None:
        """Tells the peer to open no more streams; those that are open go on. Does not wait."""
        with self._changed:
            if self._draining:
                return
            self._draining = True
            self._machine.go_away()
        if self._wire.is_writable():  # else it goes with what is sent next
            with contextlib.suppress(OSError):
                self._flush()

    def cut(self) -> None:
        """Ends the connection at once, from any thread."""
        self._wire.cut()

    # What streams ask for.

    def taken(self, stream: Stream, charge: int) -> None:
        with self._gone_if_lost():
            with self._changed:
                self._machine.acknowledge(stream.number, charge)
            self._flush()

    def send_headers(self, stream: Stream, headers: Headers, *, end: bool) -> None:
        with self._gone_if_lost():
            with self._changed:
                if stream.over:
                    raise GoneError
                self._machine.send_headers(stream.number, headers, end=end)
            self._flush()
        if end:
            self._end(stream)

    def send_data(self, stream: Stream, pieces: Sequence[Piece]) -> None:
        rest = frames.Pieces(pieces)
        with self._gone_if_lost():
            while rest.size:
                self._wait_for_room(stream)
                with self._sending:
                    self._wire.send(self._next_frames(stream, rest))
                self._flush()  # what others had to say meanwhile, and left to this thread

    def reset(self, stream: Stream, code: int) -> None:
        with self._changed:
            if stream.over:
                return
            self._machine.reset(stream.number, code)
        with contextlib.suppress(OSError):
            self._flush()
        self._end(stream)

    def _wait_for_room(self, stream: Stream) -> None:
        with self._changed:
            while not (stream.over or self._machine.room(stream.number)):
                self._changed.wait()
            if stream.over:
                raise GoneError

    def _next_frames(self, stream: Stream, rest: frames.Pieces) -> list[Piece]:
        """What h2 has to say, then DATA frames for as much as the peer has room for."""
        with self._changed:
            unsent = self._machine.take_unsent()
            most = 0 if stream.over else min(rest.size, _SEND_BYTES)
            count = self._machine.claim(stream.number, most)
            frame_bytes = self._machine.frame_bytes
        return [unsent, *frames.data(stream.number, rest, count, frame_bytes)]

    def _flush(self) -> None:
        """Sends what h2 has to say, unless somebody is sending, who then does so."""
        while self._opened:
            with self._changed:
                unsent_bytes = self._machine.unsent_bytes
            if not unsent_bytes:
                return
            if unsent_bytes > _MAX_UNSENT_BYTES:
                self._wire.cut()
                raise ConnectionAbortedError("the peer does not read what it makes us answer")
            if not self._sending.acquire(blocking=False):
                return
            try:
                with self._changed:
                    unsent = self._machine.take_unsent()
                self._wire.send([unsent])
            except OSError:
                self._wire.cut()  # half a frame may be on its way: nothing can follow it
                raise
            finally:
                self._sending.release()

    # What the peer says.

    def _receive(self) -> bytes:
        with contextlib.suppress(TimeoutError):
            return self._wire.receive(SERVER_PING_SECONDS)
        with self._changed:
            self._machine.ping()
        self._flush()
        while True:
            # A ping lies behind what was being sent before it. A peer that takes nothing of that
            # is found out by who sends it; one that takes it slowly is there.
            behind = self._sending.locked()
            try:
                return self._wire.receive(SERVER_PATIENCE_SECONDS)
            except TimeoutError:
                if not behind:
                    raise

    def _take_in(self, data: bytes) -> None:
        try:
            with self._changed:
                events = self._machine.receive(data)
                self._changed.notify_all()  # windows may have opened
        except BrokenError:
            self._flush()
            raise
        for event in events:
            self._on(event)

    def _on(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self._open(event)
            return
        stream = self._streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.DataReceived):
            charge = event.flow_controlled_length
            if stream is None or not stream.feed(event.data, charge):
                with self._changed:
                    self._machine.acknowledge(event.stream_id, charge)
        elif isinstance(event, h2.events.StreamReset):
            self._count_reset()
            if stream is not None:
                self._end(stream)
        elif isinstance(event, h2.events.StreamEnded) and stream is not None:
            stream.feed_end()

    def _open(self, event: h2.events.RequestReceived) -> None:
        stream = Stream(self, event.stream_id, _texts(event.headers))
        with self._changed:
            if self._draining:
                self._machine.reset(event.stream_id, _REFUSED_STREAM)
                return
            self._streams[event.stream_id] = stream
        self._accept(stream)

    def _count_reset(self) -> None:
        now = time.monotonic()
        if now - self._resets_since > _RESETS_SECONDS:
            self._resets, self._resets_since = 0, now
        self._resets += 1
        if self._resets > _MAX_RESETS:
            raise ConnectionAbortedError("the peer resets more streams than anybody needs")

    def _end(self, stream: Stream) -> None:
        with self._changed:
            self._streams.pop(stream.number, None)
        charge = stream.finish()
        with self._changed:
            self._machine.acknowledge(stream.number, charge)
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._flush()

    @contextlib.contextmanager
    def _gone_if_lost(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._wire.cut()
            raise GoneError from error
        except h2.exceptions.H2Error as error:
            # The peer has reset the stream, and the reader is about to tell.
            raise GoneError from error


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
