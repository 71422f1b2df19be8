"""gRPC calls: messages with their lengths, on one HTTP/2 exchange each."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from infeed.credentials import Credentials
from infeed.errors import (
    AuthenticationError,
    InfeedError,
    ProtocolError,
    ServerUnavailableError,
)
from infeed.http2 import BrokenError, Exchange, Headers, LostError
from infeed.link import CONNECT_SECONDS, UntrustedError
from infeed.status import map_status, refusal
from infeed.target import authority

_PREFIX_BYTES = 5
"""Before each message: whether it is compressed, and its length."""

_JOIN_SECONDS = 1.0

NONE = Credentials()

MAX_MESSAGE_BYTES = 1 << 26
"""A message that announces more is taken for damaged. Batches travel in chunks of 1 MiB."""


class Call(Protocol):
    """An open stream: the server's messages, in order."""

    @property
    def server(self) -> str:
        """The address of the server that answers."""

    def next(self) -> int | None:
        """Goes on to the next message and gives its length; None at the end of the stream.

        Raises an `InfeedError` when the stream ends badly.
        """

    def read_into(self, memory: memoryview) -> None:
        """The next bytes of the message, as many as fit. Raises an `InfeedError`."""

    def cancel(self) -> None:
        """Ends the stream at once, from any thread; who reads it gets an error."""

    def close(self) -> None:
        """Frees the stream; called by the thread that reads."""


class GrpcCall:
    """A call of a method. Connects at the first `next`; sends requests from a thread of its own."""

    def __init__(
        self,
        address: str,
        method: str,
        requests: Iterator[Any],
        *,
        timeout: float | None,
        draining: Callable[[], None],
        closed: Callable[[GrpcCall], None],
        credentials: Credentials = NONE,
        name: str | None = None,
    ) -> None:
        """`requests` are protobuf messages. `timeout`, in seconds, is for the whole call.

        `name` is the address that the user gave, where `address` is one of what it stands for.

        `draining` is called when the server says that it will soon be gone, `closed` when the call
        ends.
        """
        self.server = address
        self._method = method
        self._requests = requests
        self._timeout = timeout
        self._closed = closed
        self._name = name or address
        self._credentials = credentials
        self._link = credentials.link(address, self._name)
        self._exchange = Exchange(
            self._link, None if timeout is None else time.monotonic() + timeout, draining
        )
        self._sender: threading.Thread | None = None
        self._failure: BaseException | None = None
        """What the requests themselves raised."""
        self._left = 0

    def next(self) -> int | None:
        with self._told():
            if self._sender is None:
                self._start()
            prefix = memoryview(bytearray(_PREFIX_BYTES))
            if not self._fill(prefix):
                if error := self._status():
                    raise error
                return None
            if error := refusal(self._exchange.headers, self.server):
                raise error  # what follows is a proxy's page, not a message
        size = int.from_bytes(prefix[1:], "big")
        if prefix[0]:
            raise ProtocolError(f"{self.server} sent a compressed message, which nobody asked for")
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"{self.server} sent a message of {size} bytes")
        self._left = size
        return size

    def read_into(self, memory: memoryview) -> None:
        if len(memory) > self._left:
            raise ProtocolError(
                f"{self.server} sent a message that ends {len(memory) - self._left} bytes early"
            )
        with self._told():
            if memory and not self._fill(memory):
                raise self._broken_off()
        self._left -= len(memory)

    def cancel(self) -> None:
        self._link.cut()  # first: it frees who sends, and who sends holds what `end` waits for
        self._exchange.end()

    def close(self) -> None:
        self.cancel()
        if self._sender is not None:
            self._sender.join(_JOIN_SECONDS)  # it must not meet another file in the socket's place
        self._link.close()
        self._closed(self)

    def _start(self) -> None:
        self._link.open(CONNECT_SECONDS if self._timeout is None else self._timeout)
        self._exchange.start(self._headers())
        self._sender = threading.Thread(target=self._send, name="infeed-requests", daemon=True)
        self._sender.start()

    def _headers(self) -> Headers:
        headers: Headers = [
            (":method", "POST"),
            (":scheme", self._credentials.scheme),
            (":path", self._method),
            (":authority", authority(self._name)),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "infeed"),
            *self._credentials.headers(),
        ]
        if self._timeout is not None:
            headers.append(("grpc-timeout", f"{max(1, round(self._timeout * 1000))}m"))
        return headers

    def _send(self) -> None:
        try:
            for request in self._requests:
                message = request.SerializeToString()
                self._exchange.send(b"\0" + len(message).to_bytes(4, "big") + message)
            self._exchange.send(b"", end=True)
        except (LostError, OSError):
            pass  # the thread that reads meets it too
        except BaseException as error:  # noqa: BLE001 - or the reader would wait for ever
            self._failure = error
            self._link.cut()

    def _fill(self, memory: memoryview) -> bool:
        """Fills the memory; False when the stream has ended before the first byte."""
        begin = memory
        while memory:
            count = self._exchange.read(memory)
            if not count:
                if len(memory) == len(begin):
                    return False
                raise self._broken_off()
            memory = memory[count:]
        return True

    def _status(self) -> InfeedError | None:
        return map_status(self._exchange.headers, self._exchange.trailers, self.server)

    def _broken_off(self) -> InfeedError:
        return self._status() or ProtocolError(f"{self.server} broke off in a message")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """The only place that turns what the connection raises into an `InfeedError`."""
        try:
            yield
        except BrokenError as error:
            raise ProtocolError(
                f"{self.server} answers, but not as an infeed server: {error}", target=self.server
            ) from error
        except InfeedError:
            raise
        except UntrustedError as error:
            raise AuthenticationError(str(error), target=self.server) from error
        except (LostError, OSError) as error:
            if self._failure is not None:
                raise self._failure from None
            raise ServerUnavailableError(
                f"no server at {self.server}: {_reason(error)}", target=self.server
            ) from error


def only_message(call: Call, response: Any) -> Any:
    """The message of a call that has one, its end awaited; `response` is a protobuf class.

    Raises what the call does, and `ProtocolError` for none, for two, and for what cannot be parsed.
    """
    size = call.next()
    if size is None:
        raise ProtocolError(f"{call.server} answered without a message")
    message = bytearray(size)
    call.read_into(memoryview(message))
    if call.next() is not None:
        raise ProtocolError(f"{call.server} answered with two messages")
    try:
        return response.FromString(bytes(message))
    except DecodeError as error:
        raise ProtocolError(f"{call.server} sent a message that cannot be parsed") from error


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


__all__ = ["MAX_MESSAGE_BYTES", "Call", "GrpcCall", "only_message"]
