"""A gRPC call on a stream of HTTP/2: messages with their lengths, and a status at the end."""

from __future__ import annotations

import urllib.parse
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

import grpc

from infeed_server.http2.stream import GoneError, Headers, Stream
from infeed_server.http2.wire import Piece
from infeed_server.service.access import Anybody, Caller

Framed: TypeAlias = "list[Piece]"
"""Messages, each with its prefix, in pieces that lie where they lie."""

_MAX_REQUEST_BYTES = 64 << 10
"""The largest message that a client may send: its requests are a few dozen bytes each."""

_PREFIX_BYTES = 5
_RESPONSE: Headers = [(":status", "200"), ("content-type", "application/grpc")]


def framed(*messages: Sequence[Piece]) -> Framed:
    """Messages, each in pieces, as they travel together."""
    pieces: list[Piece] = []
    for message in messages:
        pieces.append(b"\0" + sum(map(len, message)).to_bytes(4, "big"))
        pieces.extend(message)
    return pieces


class StatusError(Exception):
    """Ends a call with a status."""

    def __init__(
        self, code: grpc.StatusCode, details: str, trailers: Sequence[tuple[str, Any]] = ()
    ) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.trailers = trailers


class PeerGoneError(grpc.RpcError):
    """What a handler meets when the peer has given the call up."""


class ServerCall:
    """One call, as its handler sees it.

    It is what gRPC's own servicers ask for as their context, as far as they use it.
    """

    def __init__(self, stream: Stream) -> None:
        self.method = stream.headers.get(":path", "")
        self.caller: Caller = Anybody()
        """Who makes the call, once that is known."""
        self._stream = stream
        self._buffer = bytearray()
        self._begun = False
        self._code = grpc.StatusCode.OK
        self._details = ""

    # For handlers.

    def peer(self) -> str:
        return self._stream.peer

    @property
    def authorization(self) -> str | None:
        """What the peer shows of itself."""
        return self._stream.headers.get("authorization")

    @property
    def ok(self) -> bool:
        return self._code is grpc.StatusCode.OK

    def is_active(self) -> bool:
        return not self._stream.over

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """To be called when the call is over; False when it is already."""
        return self._stream.call_at_end(callback)

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise StatusError(code, details)

    # For who runs the handler.

    def messages(self) -> Iterator[bytes]:
        """What the peer sends, until it has sent all. Raises `PeerGoneError` and `StatusError`."""
        while self._fill(_PREFIX_BYTES):
            compressed, size = self._buffer[0], int.from_bytes(self._buffer[1:_PREFIX_BYTES], "big")
            if compressed:
                raise StatusError(
                    grpc.StatusCode.UNIMPLEMENTED, "a compressed message; this server takes none"
                )
            if size > _MAX_REQUEST_BYTES:
                raise StatusError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    f"a message of {size} bytes; at most {_MAX_REQUEST_BYTES} are taken",
                )
            end = _PREFIX_BYTES + size
            if not self._fill(end):
                return
            message = bytes(self._buffer[_PREFIX_BYTES:end])
            del self._buffer[:end]
            yield message

    def send(self, framed: Framed) -> None:
        """Sends messages from where they lie."""
        try:
            self._begin()
            self._stream.send(framed)
        except GoneError:
            raise PeerGoneError from None

    def end(self, error: StatusError | None = None) -> None:
        """Ends the call, well unless the handler or `error` say otherwise."""
        code, details = (error.code, error.details) if error else (self._code, self._details)
        trailers = [("grpc-status", str(code.value[0]))]
        if details:
            trailers.append(("grpc-message", _percent(details)))
        trailers += [_encoded(*item) for item in (error.trailers if error else ())]
        first = [] if self._begun else _RESPONSE
        try:
            self._stream.send_headers([*first, *trailers], end=True)
        except GoneError:
            raise PeerGoneError from None

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._stream.send_headers(_RESPONSE)

    def _fill(self, count: int) -> bool:
        """Has so many bytes in the buffer; False when the peer has ended before."""
        while len(self._buffer) < count:
            try:
                data = self._stream.receive()
            except GoneError:
                raise PeerGoneError from None
            if data is None:
                if self._buffer:
                    raise StatusError(grpc.StatusCode.INTERNAL, "a message that ends early")
                return False
            self._buffer += data
        return True


_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""What stands for itself in grpc-message."""


def _percent(text: str) -> str:
    """As grpc-message has it; blanks at the ends, which no header may have, are escaped too."""
    quoted = urllib.parse.quote(text, safe=_PLAIN, errors="replace")
    inner = quoted.strip(" ")
    if inner == quoted:
        return quoted
    begin = quoted.index(inner)
    return "%20" * begin + inner + "%20" * (len(quoted) - begin - len(inner))


def _encoded(key: str, value: Any) -> tuple[str, str]:
    if key.endswith("-bin"):
        return key, b64encode(value).decode().rstrip("=")
    return key, value
