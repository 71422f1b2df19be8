"""One stream of a sequential pipeline: as much ahead as its account has room for, then no more."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from infeed.errors import ServerUnavailableError
from infeed_server.engines.base import Answer, HostBatch, Request
from infeed_server.engines.budget import FEWEST, Account, Budget
from infeed_server.engines.sequence import SequentialSession


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


class Played:
    """A session whose answers are made at once, and noted."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.sent: list[Request] = []
        self.left = threading.Event()
        self.refused = 0
        """How often there was no room for another batch."""
        self.account: Account = Budget(1 << 30).open("n")
        self._take = self.account.take
        self.account.take = self._noted_take  # type: ignore[method-assign]
        self.session = SequentialSession(
            self._answer, self.account, self.sent.append, lambda _: self.left.set()
        )
        self.session.start("infeed-sequence-test")

    def _noted_take(self) -> bool:
        took = self._take()
        self.refused += not took
        return took

    def _answer(self, request: Request, wanted: Callable[[], bool]) -> Answer:
        assert wanted()
        self.made.append(request.start)
        ids = np.arange(request.start, request.start + request.slots)
        return HostBatch(request.start, 0, {"x": ids}, ids, ids >= 0)

    def ask(self, count: int) -> list[Any]:
        return [self.session.submit(Request(0, 4 * number, 4, 4)) for number in range(count)]


@pytest.fixture
def played() -> Iterator[Played]:
    one = Played()
    yield one
    one.session.close()
    assert one.left.wait(60)


def test_no_more_is_made_than_may_wait_to_be_sent(played: Played) -> None:
    futures = played.ask(5)
    until(lambda: played.refused == 1, "the third has no room")
    assert (len(played.made), played.account.batches) == (FEWEST, FEWEST)
    for number in range(5):
        assert futures[number].result(60).start == 4 * number
        played.session.sent()
    assert played.account.batches == 0


def test_more_once_it_is_known_what_they_weigh(played: Played) -> None:
    played.session.weigh(1000)
    futures = played.ask(5)
    assert [future.result(60).start for future in futures] == [0, 4, 8, 12, 16]
    assert played.account.bytes == 5000


def test_a_session_that_is_closed_makes_nothing_and_holds_nothing(played: Played) -> None:
    futures = played.ask(5)
    until(lambda: len(played.made) == FEWEST, "two are made")
    played.session.close()
    assert played.left.wait(60)
    assert (len(played.made), played.account.batches) == (FEWEST, 0)
    for future in [*futures[FEWEST:], played.session.submit(Request(0, 0, 4, 4))]:
        with pytest.raises(ServerUnavailableError):
            future.result(60)


def test_an_answer_that_was_taken_is_held_by_nobody(played: Played) -> None:
    gc.disable()  # which would find what holds itself, some day
    try:
        left = [weakref.ref(future.result(60)) for future in played.ask(2)]
        until(lambda: not any(ref() is not None for ref in left), "both are gone")
    finally:
        gc.enable()
