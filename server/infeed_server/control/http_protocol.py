"""uvicorn's HTTP/1.1, with limits on connections and on the time for a request and its response."""

from __future__ import annotations

import asyncio
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 64
"""A connection more ends the one that has been waited for longest, so that peers that send or read
nothing do not keep probes out."""

REQUEST_TIMEOUT_SECONDS = 5.0
"""Time for a request to arrive, from the connection's begin or from the previous response; and then
for the peer to take the response."""

ANSWER_TIMEOUT_SECONDS = 60.0
"""Time for the answer to be made: a preview waits for its turn behind the trainers' batches."""


class LimitedProtocol(H11Protocol):
    """One connection. uvicorn limits neither their number nor the time that a peer may take."""

    _timer: asyncio.TimerHandle | None = None
    _waits_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_peer()
        open_ones = [each for each in self.connections if not _limited(each).transport.is_closing()]
        if len(open_ones) > MAX_CONNECTIONS:
            oldest = min(map(_limited, open_ones), key=lambda each: each._waits_since)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        previous = self.cycle
        super().handle_events()
        if self.cycle is not previous:
            self._await_answer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_peer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.cycle and not self.cycle.response_complete:
            self._await_answer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._await_peer()

    def _await_peer(self) -> None:
        """Ends the connection unless the peer sends its request, or takes its response, in time."""
        self._start_timer(REQUEST_TIMEOUT_SECONDS)

    def _await_answer(self) -> None:
        """Ends the connection unless its answer is made in time."""
        # While nothing can be written, the answer waits for the peer to take the previous one.
        paused = self.flow.write_paused
        self._start_timer(REQUEST_TIMEOUT_SECONDS if paused else ANSWER_TIMEOUT_SECONDS)

    def _start_timer(self, seconds: float) -> None:
        self._cancel_timer()
        self._waits_since = time.monotonic()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _limited(connection: object) -> LimitedProtocol:
    assert isinstance(connection, LimitedProtocol)
    return connection
