"""Many calls at a time over a few connections, each followed to its proper end."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.stress.fuzz import frames
from tests.stress.fuzz.calls import BAD_MESSAGE, BUSY, FULL, Call, Catalog, Draw
from tests.stress.fuzz.case import Case
from tests.stress.fuzz.peer import Answer, Peer

from infeed.status import CODES

HANG_SECONDS = 120.0
"""After which a call that has not ended hangs."""

_CONNECTIONS = 4
_CALLS_EACH = 12
_MAX_STREAMS = 1000
_MAX_RESETS = 400
"""Of one connection: a server cuts off who resets many streams."""

_TICK_SECONDS = 0.02


@dataclass
class _Running:
    case: Case[Draw]
    call: Call
    stream: int
    answer: Answer
    began: float


class _Connection:
    """A connection and the calls on it."""

    def __init__(self, address: str) -> None:
        self.peer = Peer(address)
        self.peer.greet()
        self.calls: list[_Running] = []
        self._next = 1
        self.resets = 0

    @property
    def worn(self) -> bool:
        return self._next > 2 * _MAX_STREAMS or self.resets > _MAX_RESETS

    def begin(self, case: Case[Draw], call: Call, now: float) -> None:
        stream, self._next = self._next, self._next + 2
        answer = self.peer.expect(stream)
        ends = call.end and not call.parts
        flags = frames.END_HEADERS | frames.END_STREAM * ends
        self.peer.raw(frames.headers(stream, call.headers, flags))
        for number, part in enumerate(call.parts, 1):
            self.peer.data(stream, part, end=call.end and number == len(call.parts))
        self.calls.append(_Running(case, call, stream, answer, now))

    def leave(self, running: _Running) -> None:
        self.peer.raw(frames.reset(running.stream))
        self.resets += 1
        self.end(running)

    def end(self, running: _Running) -> None:
        self.peer.forget(running.stream)
        self.calls.remove(running)


Outcome = Callable[[Case[Draw], str, float, "str | None"], None]
"""Is told of each case: how it ended, after how many seconds, and what is wrong with that."""


class Clients:
    """Runs cases that are calls, many at a time."""

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
        """Runs the cases to the end of each."""
        todo = iter(cases)
        more = True
        while more or any(connection.calls for connection in self._open):
            more = more and self._fill(todo)
            self._turn()
        for connection in self._open:
            connection.peer.close()
        self._open.clear()

    def _fill(self, todo: Iterable[Case[Draw]]) -> bool:
        """Begins as many as there is room for; False when there are no more."""
        while len(self._open) < _CONNECTIONS:
            self._open.append(_Connection(self._address))
        for connection in self._open:
            while len(connection.calls) < _CALLS_EACH and not connection.worn:
                case = next(todo, None)
                if case is None:
                    return False
                call = case.draw(case.rng(self._seed), self._catalog)
                connection.begin(case, call, self._clock())
        return True

    def _turn(self) -> None:
        """Sends and receives what there is, and ends what has ended."""
        poll = select.poll()
        by_file = {connection.peer.fileno(): connection for connection in self._open}
        for file, connection in by_file.items():
            poll.register(file, select.POLLIN | select.POLLOUT * connection.peer.wants_to_send)
        for file, events in poll.poll(_TICK_SECONDS * 1000):
            peer = by_file[file].peer
            if events & select.POLLOUT:
                peer.send()
            if events & ~select.POLLOUT:
                peer.receive()
        for connection in list(self._open):
            self._settle(connection)
            if connection.peer.over or (connection.worn and not connection.calls):
                connection.peer.send()
                connection.peer.close()
                self._open.remove(connection)

    def _settle(self, connection: _Connection) -> None:
        now = self._clock()
        for running in list(connection.calls):
            call, answer = running.call, running.answer
            seconds = now - running.began
            if answer.ended or answer.reset is not None:
                connection.end(running)
                self._outcome(running.case, *_judged(call, answer, seconds))
            elif connection.peer.over:
                connection.end(running)
                why = f"its connection ended (GOAWAY {connection.peer.goaway})"
                self._outcome(running.case, "lost", seconds, why)
            elif call.leave_seconds is not None and seconds >= call.leave_seconds:
                connection.leave(running)
                problem = call.check(answer) if call.check else None
                self._outcome(running.case, "left", seconds, problem)
            elif seconds > HANG_SECONDS:
                connection.leave(running)
                self._outcome(running.case, "hangs", seconds, "no end in sight")


def _judged(call: Call, answer: Answer, seconds: float) -> tuple[str, float, str | None]:
    if not answer.ended:
        return f"reset {answer.reset}", seconds, f"reset with code {answer.reset}"
    told = answer.status
    code = CODES[int(told)] if told.isdecimal() and int(told) < len(CODES) else told or "none"
    if (code == "UNAVAILABLE" and BUSY in answer.message) or (
        code == "RESOURCE_EXHAUSTED" and FULL in answer.message
    ):
        return code, seconds, None
    if code not in call.codes:
        return code, seconds, f"{code} ({answer.message[:300]}), not {sorted(call.codes)}"
    if code == "INTERNAL" and not any(known in answer.message for known in BAD_MESSAGE):
        return code, seconds, f"INTERNAL: {answer.message[:300]}"
    return code, seconds, call.check(answer) if call.check else None
