"""Waits of a connection's reading thread: for data, for timers, and for a silent peer's reply."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from infeed.http2.keepalive import SERVER_PING_INTERVAL_SECONDS, SERVER_PING_TIMEOUT_SECONDS
from infeed_server.http2.socket import ServerSocket
from infeed_server.http2.timers import Timers


class Receiver:
    """Receives, runs timers meanwhile, and pings a peer that sends nothing."""

    def __init__(
        self,
        sock: ServerSocket,
        timers: Timers,
        ping: Callable[[], None],
        is_sending: Callable[[], bool],
    ) -> None:
        """`is_sending` returns whether a ping waits behind a batch that is being sent."""
        self._socket = sock
        self._timers = timers
        self._ping = ping
        self._is_sending = is_sending

    def receive(self) -> bytes:
        """Returns some bytes, none at the end. Raises `OSError`, also of a timer."""
        with contextlib.suppress(TimeoutError):
            return self._receive_until(SERVER_PING_INTERVAL_SECONDS)
        self._ping()
        while True:
            # A ping queues behind a batch that is being sent. The sending thread detects a peer
            # that accepts none of it; a peer that accepts it slowly is alive.
            behind_a_send = self._is_sending()
            try:
                return self._receive_until(SERVER_PING_TIMEOUT_SECONDS)
            except TimeoutError:
                if not behind_a_send:
                    raise

    def _receive_until(self, timeout: float) -> bytes:
        while (wait := self._timers.run_due()) is not None and wait < timeout:
            with contextlib.suppress(TimeoutError):
                return self._socket.receive(wait)
            timeout -= wait
        return self._socket.receive(timeout)
