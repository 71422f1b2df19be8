"""Runner of many concurrent calls over a few connections."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import (
    HEALTH_LIMIT_TEXT,
    PARSE_ERROR_TEXTS,
    READER_LIMIT_TEXT,
    Call,
    Catalog,
    Draw,
)
from tests.stress.fuzz.case import Case
from tests.stress.fuzz.peer import Peer, Response

from infeed.rpc.status import CODES

HANG_TIMEOUT_SECONDS = 120.0
"""Time after which a call counts as hanging."""

_CONNECTIONS = 4
_CALLS_PER_CONNECTION = 12
_MAX_STREAMS = 1000
_MAX_RESETS = 400
"""Resets of one connection, after which a new one is opened: the server limits them."""

_POLL_TIMEOUT_SECONDS = 0.02


@dataclass
class _RunningCall:
    case: Case[Draw]
    call: Call
    stream: int
    response: Response
    begin: float


class _Connection:
    """Connection with its calls."""

    def __init__(self, address: str) -> None:
        self.peer = Peer(address)
        self.peer.send_preface()
        self.calls: list[_RunningCall] = []
        self._next = 1
        self.resets = 0

    @property
    def is_exhausted(self) -> bool:
        return self._next > 2 * _MAX_STREAMS or self.resets > _MAX_RESETS

    def begin(self, case: Case[Draw], call: Call, now: float) -> None:
        stream, self._next = self._next, self._next + 2
        response = self.peer.expect(stream)
        ends = call.end and not call.parts
        flags = frames.END_HEADERS | frames.END_STREAM * ends
        self.peer.raw(frames.headers(stream, call.headers, flags))
        for number, part in enumerate(call.parts, 1):
            self.peer.data(stream, part, end=call.end and number == len(call.parts))
        self.calls.append(_RunningCall(case, call, stream, response, now))

    def cancel(self, running: _RunningCall) -> None:
        self.peer.raw(frames.reset(running.stream))
        self.resets += 1
        self.end(running)

    def end(self, running: _RunningCall) -> None:
        self.peer.forget(running.stream)
        self.calls.remove(running)


Outcome = Callable[[Case[Draw], str, float, "str | None"], None]
"""Callback for each case, with its outcome, duration in seconds, and problem or None."""


class CallRunner:
    """Runs cases that are calls, many concurrently."""

    def __init__(
        self,
        address: str,
        catalog: Catalog,
        seed: int,
        outcome: Outcome,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._address = address
        self._catalog = catalog
        self._seed = seed
        self._outcome = outcome
        self._open: list[_Connection] = []

    def run(self, cases: Iterable[Case[Draw]]) -> None:
        """Runs the cases until each has ended."""
        pending = iter(cases)
        has_more = True
        while has_more or any(connection.calls for connection in self._open):
            has_more = has_more and self._start_calls(pending)
            self._poll()
        for connection in self._open:
            connection.peer.close()
        self._open.clear()

    def _start_calls(self, pending: Iterator[Case[Draw]]) -> bool:
        """Starts as many cases as allowed; returns False when no case is left."""
        while len(self._open) < _CONNECTIONS:
            self._open.append(_Connection(self._address))
        for connection in self._open:
            while len(connection.calls) < _CALLS_PER_CONNECTION and not connection.is_exhausted:
                case = next(pending, None)
                if case is None:
                    return False
                call = case.draw(case.rng(self._seed), self._catalog)
                connection.begin(case, call, self._clock())
        return True

    def _poll(self) -> None:
        """Sends and receives available data, and reports the calls that have ended."""
        poll = select.poll()
        by_file = {connection.peer.fileno(): connection for connection in self._open}
        for file, connection in by_file.items():
            poll.register(file, select.POLLIN | select.POLLOUT * connection.peer.wants_to_send)
        for file, events in poll.poll(_POLL_TIMEOUT_SECONDS * 1000):
            peer = by_file[file].peer
            if events & select.POLLOUT:
                peer.send()
            if events & ~select.POLLOUT:
                peer.receive()
        for connection in list(self._open):
            self._report_ended(connection)
            if connection.peer.is_closed or (connection.is_exhausted and not connection.calls):
                connection.peer.send()
                connection.peer.close()
                self._open.remove(connection)

    def _report_ended(self, connection: _Connection) -> None:
        now = self._clock()
        for running in list(connection.calls):
            call, response = running.call, running.response
            seconds = now - running.begin
            if response.ended or response.reset is not None:
                connection.end(running)
                self._outcome(running.case, *_evaluate(call, response, seconds))
            elif connection.peer.is_closed:
                connection.end(running)
                problem = f"its connection ended (GOAWAY {connection.peer.goaway})"
                self._outcome(running.case, "lost", seconds, problem)
            elif call.cancel_after_seconds is not None and seconds >= call.cancel_after_seconds:
                connection.cancel(running)
                problem = call.check(response) if call.check else None
                self._outcome(running.case, "left", seconds, problem)
            elif seconds > HANG_TIMEOUT_SECONDS:
                connection.cancel(running)
                self._outcome(running.case, "hangs", seconds, "no end in sight")


def _evaluate(call: Call, response: Response, seconds: float) -> tuple[str, float, str | None]:
    if not response.ended:
        end = f"reset {response.reset}"
        problem = None if end in call.codes else f"reset with code {response.reset}"
        return end, seconds, problem
    status = response.status
    is_known = status.isdecimal() and int(status) < len(CODES)
    code = CODES[int(status)] if is_known else status or "none"
    if (code == "UNAVAILABLE" and READER_LIMIT_TEXT in response.message) or (
        code == "RESOURCE_EXHAUSTED" and HEALTH_LIMIT_TEXT in response.message
    ):
        return code, seconds, None
    if code not in call.codes:
        return code, seconds, f"{code} ({response.message[:300]}), not {sorted(call.codes)}"
    if code == "INTERNAL" and not any(known in response.message for known in PARSE_ERROR_TEXTS):
        return code, seconds, f"INTERNAL: {response.message[:300]}"
    return code, seconds, call.check(response) if call.check else None
