"""Connections that are one case each: some at a time, each followed to the end of it."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.stress.fuzz.calls import BAD_MESSAGE, PROPER, Catalog
from tests.stress.fuzz.case import Case
from tests.stress.fuzz.clients import Outcome
from tests.stress.fuzz.peer import Answer, Peer
from tests.stress.fuzz.raw_connections import Draw, RawConnection

from infeed.status import CODES

HANG_SECONDS = 120.0
"""After which a connection that has not ended hangs."""

_CONNECTIONS = 24
_TICK_SECONDS = 0.02


@dataclass
class _Running:
    case: Case[Draw]
    line: RawConnection
    peer: Peer
    began: float
    sent: int = 0
    broken: str | None = None
    """What the server said that no server may say."""


class ConnectionRunner:
    """Runs cases that are whole connections, some at a time."""

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
        self._running: list[_Running] = []

    def run(self, cases: Iterable[Case[Draw]]) -> None:
        """Runs the cases to the end of each."""
        todo = iter(cases)
        more = True
        while more or self._running:
            while more and len(self._running) < _CONNECTIONS:
                case = next(todo, None)
                if more := case is not None:
                    self._begin(case)
            self._turn()

    def _begin(self, case: Case[Draw]) -> None:
        line = case.draw(case.rng(self._seed), self._catalog)
        peer = Peer(self._address)
        for stream in range(1, 12, 2):
            peer.expect(stream)
        self._running.append(_Running(case, line, peer, self._clock()))

    def _turn(self) -> None:
        by_file = {each.peer.fileno(): each for each in self._running}
        poll = select.poll()
        for file, each in by_file.items():
            self._say(each)
            reads = each.line.reads or each.sent == len(each.line.parts)
            events = select.POLLIN * reads | select.POLLOUT * each.peer.wants_to_send
            poll.register(file, events)
        for file, events in poll.poll(_TICK_SECONDS * 1000):
            each = by_file[file]
            if events & select.POLLOUT:
                each.peer.send()
            if events & ~select.POLLOUT:
                try:
                    each.peer.receive()
                except Exception as error:  # noqa: BLE001 - whatever it is, the server said it
                    each.broken = f"{type(error).__name__}: {error}"
        for each in list(self._running):
            self._settle(each)

    def _say(self, each: _Running) -> None:
        if each.peer.wants_to_send or each.peer.half_closed:
            return
        if each.sent < len(each.line.parts):
            each.peer.raw(each.line.parts[each.sent])
            each.sent += 1
        elif not (each.line.must_end or each.line.abort):
            each.peer.finish()

    def _settle(self, each: _Running) -> None:
        peer, seconds = each.peer, self._clock() - each.began
        done = each.sent == len(each.line.parts) and not peer.wants_to_send
        if each.broken or peer.over:
            self._end(each, _how(peer), seconds, each.broken or _problem(peer))
        elif each.line.abort and done:
            peer.abort()
            self._end(each, "left", seconds, None)
        elif seconds > HANG_SECONDS:
            self._end(each, "hangs", seconds, "the server does not end the connection")

    def _end(self, each: _Running, how: str, seconds: float, problem: str | None) -> None:
        each.peer.close()
        self._running.remove(each)
        self._outcome(each.case, how, seconds, problem)


def _how(peer: Peer) -> str:
    answers = [answer for answer in peer.answers.values() if answer.ended]
    if peer.goaway is not None:
        return f"GOAWAY {peer.goaway}"
    return f"closed, {len(answers)} answered" if answers else "closed"


def _problem(peer: Peer) -> str | None:
    for answer in peer.answers.values():
        told = answer.status
        if told.isdecimal() and not _is_proper(answer):
            return f"{CODES[int(told)]}: {answer.message[:300]}"
    return None


def _is_proper(answer: Answer) -> bool:
    code = CODES[int(answer.status)]
    parsing = code == "INTERNAL" and any(known in answer.message for known in BAD_MESSAGE)
    return code in PROPER or parsing
