"""Tests of the session of one stream: it works ahead within its quota, and holds nothing more."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from infeed.shared.errors import ServerUnavailableError
from infeed_server.engines.base import Answer, HostBatch, Request, Trainer
from infeed_server.engines.memory_budget import MIN_BATCHES, MemoryBudget
from infeed_server.engines.sequential.session import SequentialSession


class AnsweredSession:
    """A session whose answers are made as soon as its quota has room."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.closed = 0
        self.quota = MemoryBudget(1 << 30).open_quota("n")
        self.session = SequentialSession(
            *(Trainer(), 0, self.quota, threading.Condition(), self._serve, self._on_closed)
        )

    def submit(self, count: int) -> list[Future[Answer]]:
        return [self.session.submit(Request(0, 4 * number, 4, 4)) for number in range(count)]

    def _serve(self, sessions: Sequence[SequentialSession]) -> None:
        for session in sessions:
            while request := session.start_next():
                self.made.append(request.start)
                ids = np.arange(request.start, request.start + request.slots)
                answer = HostBatch(request.start, 0, {"x": ids}, ids, ids >= 0)
                session.finish_next().set_result(answer)

    def _on_closed(self, session: SequentialSession) -> None:
        self.closed += session is self.session


@pytest.fixture
def answered() -> AnsweredSession:
    return AnsweredSession()


def start(future: Future[Answer]) -> int:
    answer = future.result(0)
    assert isinstance(answer, HostBatch)
    return answer.start


def test_unsent_answers_are_limited_by_the_quota(answered: AnsweredSession) -> None:
    futures = answered.submit(5)
    assert (len(answered.made), answered.quota.batches) == (MIN_BATCHES, MIN_BATCHES)
    assert answered.session.queued == 5 - MIN_BATCHES
    for number in range(5):
        assert start(futures[number]) == 4 * number
        answered.session.on_sent()
    assert answered.quota.batches == 0


def test_known_batch_size_allows_more_batches(answered: AnsweredSession) -> None:
    answered.session.set_batch_bytes(1000)
    assert [start(future) for future in answered.submit(5)] == [0, 4, 8, 12, 16]
    assert answered.quota.bytes == 5000


def test_closed_session_makes_and_holds_nothing(answered: AnsweredSession) -> None:
    futures = answered.submit(5)
    assert futures[-1].cancel()
    answered.session.close()
    assert (len(answered.made), answered.quota.batches, answered.closed) == (MIN_BATCHES, 0, 1)
    late: Any = answered.session.submit(Request(0, 0, 4, 4))
    for future in [*futures[MIN_BATCHES:-1], late]:
        with pytest.raises(ServerUnavailableError):
            future.result(0)


def test_delivered_answer_is_not_held(answered: AnsweredSession) -> None:
    answers = [weakref.ref(future.result(0)) for future in answered.submit(2)]
    assert not any(answer() is not None for answer in answers)
