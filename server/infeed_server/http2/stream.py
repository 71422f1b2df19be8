"""One request of a peer and the answer to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from infeed_server.http2.wire import Piece

if TYPE_CHECKING:
    from infeed_server.http2.connection import Connection

log = logging.getLogger(__name__)

Headers = list[tuple[str, str]]


class GoneError(Exception):
    """The peer has given the request up, or is gone."""


class Stream:
    """Its data is received by one thread and its answer sent by one; `GoneError` ends both."""

    def __init__(self, connection: Connection, number: int, headers: dict[str, str]) -> None:
        self.headers = headers
        """Of the request, names in lower case, pseudo-headers among them."""
        self.number = number
        self.received_all = False
        """Whether the peer has ended its request."""
        self._connection = connection
        self._changed = threading.Condition()
        self._received = bytearray()
        self._charge = 0  # at least as much, and what the peer's window was charged for it
        self._over = False
        self._callbacks: list[Callable[[], None]] = []

    @property
    def peer(self) -> str:
        return self._connection.peer

    @property
    def secure(self) -> bool:
        """Whether nobody on the way can read it."""
        return self._connection.secure

    @property
    def over(self) -> bool:
        """Whether nothing can be received or sent any more."""
        return self._over

    def receive(self) -> bytes | None:
        """Some of the request's data; None at its end. What is not taken holds the peer back."""
        with self._changed:
            while not (self._charge or self.received_all or self._over):
                self._changed.wait()
            if self._over:
                raise GoneError
            if not self._charge:
                return None
            data, charge = bytes(self._received), self._charge
            self._received.clear()
            self._charge = 0
        self._connection.taken(self, charge)
        return data

    def send_headers(self, headers: Headers, *, end: bool = False) -> None:
        self._connection.send_headers(self, headers, end=end)

    def send(self, pieces: Sequence[Piece]) -> None:
        """Sends the pieces end to end, without a copy; they may be changed once this returns."""
        self._connection.send_data(self, pieces)

    def reset(self, code: int) -> None:
        """Ends the stream without an answer, with a code of HTTP/2."""
        self._connection.reset(self, code)

    def call_at_end(self, callback: Callable[[], None]) -> bool:
        """To be called once when the stream is over; False when it is, and nothing is called."""
        with self._changed:
            if not self._over:
                self._callbacks.append(callback)
            return not self._over

    def feed(self, data: bytes, charge: int) -> bool:
        """What has come for it, and what the peer's window was charged; False when it is over."""
        with self._changed:
            if self._over:
                return False
            self._received += data
            self._charge += charge
            self._changed.notify_all()
            return True

    def feed_end(self) -> None:
        with self._changed:
            self.received_all = True
            self._changed.notify_all()

    def finish(self) -> int:
        """Makes it over; gives what the window was charged for data that nobody took."""
        with self._changed:
            if self._over:
                return 0
            self._over = True
            callbacks, self._callbacks = self._callbacks, []
            charge, self._charge = self._charge, 0
            self._received.clear()
            self._changed.notify_all()
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the connection and its other streams go on
                log.exception("what was to be called at the end of a stream failed")
        return charge
