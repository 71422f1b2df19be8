"""A listener whose connections begin with TLS, with limits on the number and time of handshakes.

asyncio's own server limits their time alone: a host that opens connections and sends nothing would
take every file descriptor of the process, those of trainers too.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

MAX_HANDSHAKES = 64
"""One more ends the oldest, so that peers that send nothing do not keep probes out."""

_ACCEPTS_AT_ONCE = 16
"""Connections accepted in a row, before the others get a turn."""

_RETRY_SECONDS = 1.0
"""Pause after a failed `accept`, such as without a free file descriptor."""


class TlsListener:
    """Accepts connections; each gets a protocol once its handshake is done.

    It has the methods of an asyncio server that uvicorn calls. Used on one event loop.
    """

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        handshake_seconds: float,
    ) -> None:
        """Starts to accept on a socket that listens, which stays the caller's."""
        self._listener = listener
        self._tls = tls
        self._protocol = protocol
        self._handshake_seconds = handshake_seconds
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], None] = {}
        """In the order of their begin."""
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accepts nothing more, and ends the handshakes. Open connections go on."""
        self._loop.remove_reader(self._listener)
        if self._retry is not None:
            self._retry.cancel()
        for handshake in self._handshakes:
            handshake.cancel()

    async def wait_closed(self) -> None:
        """Returns when the handshakes have ended."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._listener)
                self._retry = self._loop.call_later(_RETRY_SECONDS, self._accept_again)
                return
            if len(self._handshakes) >= MAX_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.cancel()
            handshake = self._loop.create_task(self._shake_hands(connection))
            self._handshakes[handshake] = None
            handshake.add_done_callback(partial(self._on_done, connection))

    def _on_done(self, connection: socket.socket, handshake: asyncio.Task[None]) -> None:
        self._handshakes.pop(handshake, None)
        if handshake.cancelled():  # perhaps before it began
            connection.close()

    def _accept_again(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    async def _shake_hands(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        # What fails is the peer's doing: it speaks no TLS, has no certificate that fits, or waits.
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_seconds,
            )
