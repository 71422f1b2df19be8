"""Runner of cases that are whole connections."""

from __future__ import annotations

import itertools
import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.stress.fuzz.call_runner import Outcome
from tests.stress.fuzz.calls import ALLOWED_CODES, PARSE_ERROR_TEXTS, Catalog
from tests.stress.fuzz.case import Case
from tests.stress.fuzz.peer import Peer, Response
from tests.stress.fuzz.raw_connections import Draw, RawConnection

from infeed.rpc.status import CODES

HANG_TIMEOUT_SECONDS = 120.0
"""Time after which a connection counts as hanging."""

_CONNECTIONS = 24
_POLL_TIMEOUT_SECONDS = 0.02

_HOSTS = [f"127.9.0.{number}" for number in range(1, 65)]
"""Loopback addresses that the connections come from in turn. The server reads what one host sends
beyond a rate of frames later, so that a hundred thousand cases of one host would take an hour."""


@dataclass
class _RunningConnection:
    case: Case[Draw]
    script: RawConnection
    peer: Peer
    begin: float
    sent: int = 0
    violation: str | None = None
    """Protocol error in the server's data."""


class ConnectionRunner:
    """Runs cases that are whole connections, some concurrently."""

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
        self._hosts = itertools.cycle(_HOSTS)
        self._running: list[_RunningConnection] = []

    def run(self, cases: Iterable[Case[Draw]]) -> None:
        """Runs the cases until each has ended."""
        pending = iter(cases)
        has_more = True
        while has_more or self._running:
            while has_more and len(self._running) < _CONNECTIONS:
                case = next(pending, None)
                if has_more := case is not None:
                    self._begin(case)
            self._poll()

    def _begin(self, case: Case[Draw]) -> None:
        script = case.draw(case.rng(self._seed), self._catalog)
        peer = Peer(self._address, next(self._hosts))
        for stream in range(1, 12, 2):
            peer.expect(stream)
        self._running.append(_RunningConnection(case, script, peer, self._clock()))

    def _poll(self) -> None:
        by_file = {running.peer.fileno(): running for running in self._running}
        poll = select.poll()
        for file, running in by_file.items():
            self._send_next(running)
            reads = running.script.reads or running.sent == len(running.script.parts)
            events = select.POLLIN * reads | select.POLLOUT * running.peer.wants_to_send
            poll.register(file, events)
        for file, events in poll.poll(_POLL_TIMEOUT_SECONDS * 1000):
            running = by_file[file]
            if events & select.POLLOUT:
                running.peer.send()
            if events & ~select.POLLOUT:
                try:
                    running.peer.receive()
                except Exception as error:  # noqa: BLE001 - any error comes from the server's data
                    running.violation = f"{type(error).__name__}: {error}"
        for running in list(self._running):
            self._report_ended(running)

    def _send_next(self, running: _RunningConnection) -> None:
        if running.peer.wants_to_send or running.peer.half_closed:
            return
        if running.sent < len(running.script.parts):
            running.peer.raw(running.script.parts[running.sent])
            running.sent += 1
        elif not running.script.abort:
            running.peer.finish()

    def _report_ended(self, running: _RunningConnection) -> None:
        peer, seconds = running.peer, self._clock() - running.begin
        done = running.sent == len(running.script.parts) and not peer.wants_to_send
        if running.violation or peer.is_closed:
            self._end(running, _describe_end(peer), seconds, running.violation or _problem(peer))
        elif running.script.abort and done:
            peer.abort()
            self._end(running, "left", seconds, None)
        elif seconds > HANG_TIMEOUT_SECONDS:
            self._end(running, "hangs", seconds, "the server does not end the connection")

    def _end(
        self, running: _RunningConnection, outcome: str, seconds: float, problem: str | None
    ) -> None:
        running.peer.close()
        self._running.remove(running)
        self._outcome(running.case, outcome, seconds, problem)


def _describe_end(peer: Peer) -> str:
    answered = [response for response in peer.responses.values() if response.ended]
    if peer.goaway is not None:
        return f"GOAWAY {peer.goaway}"
    return f"closed, {len(answered)} answered" if answered else "closed"


def _problem(peer: Peer) -> str | None:
    for response in peer.responses.values():
        status = response.status
        if status.isdecimal() and not _is_allowed(response):
            return f"{CODES[int(status)]}: {response.message[:300]}"
    return None


def _is_allowed(response: Response) -> bool:
    code = CODES[int(response.status)]
    is_parse_error = code == "INTERNAL" and any(
        text in response.message for text in PARSE_ERROR_TEXTS
    )
    return code in ALLOWED_CODES or is_parse_error
