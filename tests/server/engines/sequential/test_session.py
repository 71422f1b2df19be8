"""Tests of the session of one stream: it works ahead within its quota, and holds nothing more."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.harness.waiting import wait_until

from infeed.shared.errors import ServerUnavailableError
from infeed_server.engines.base import Answer, HostBatch, Request
from infeed_server.engines.memory_budget import MIN_BATCHES, MemoryBudget, StreamQuota
from infeed_server.engines.sequential.session import SequentialSession


class RecordedSession:
    """A session whose answers are made at once, and recorded."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.closed = threading.Event()
        self.refused = 0
        """How often the quota had no room for another batch."""
        self.quota: StreamQuota = MemoryBudget(1 << 30).open_quota("n")
        self._try_acquire = self.quota.try_acquire
        self.quota.try_acquire = self._acquire  # type: ignore[method-assign]
        self.session = SequentialSession(
            *(self._answer, self.quota, lambda _: None, lambda _: self.closed.set()),
            on_queue=lambda: None,
        )
        self.session.start("infeed-sequence-test")

    def _acquire(self) -> bool:
        acquired = self._try_acquire()
        self.refused += not acquired
        return acquired

    def _answer(self, request: Request, is_wanted: Callable[[], bool]) -> Answer:
        assert is_wanted()
        self.made.append(request.start)
        ids = np.arange(request.start, request.start + request.slots)
        return HostBatch(request.start, 0, {"x": ids}, ids, ids >= 0)

    def submit(self, count: int) -> list[Any]:
        return [self.session.submit(Request(0, 4 * number, 4, 4)) for number in range(count)]


@pytest.fixture
def recorded() -> Iterator[RecordedSession]:
    recorded = RecordedSession()
    yield recorded
    recorded.session.close()
    assert recorded.closed.wait(60)


def test_unsent_answers_are_limited_by_the_quota(recorded: RecordedSession) -> None:
    futures = recorded.submit(5)
    wait_until(lambda: recorded.refused == 1, "the third has no room")
    assert (len(recorded.made), recorded.quota.batches) == (MIN_BATCHES, MIN_BATCHES)
    for number in range(5):
        assert futures[number].result(60).start == 4 * number
        recorded.session.on_sent()
    assert recorded.quota.batches == 0


def test_known_batch_size_allows_more_batches(recorded: RecordedSession) -> None:
    recorded.session.set_batch_bytes(1000)
    futures = recorded.submit(5)
    assert [future.result(60).start for future in futures] == [0, 4, 8, 12, 16]
    assert recorded.quota.bytes == 5000


def test_closed_session_makes_and_holds_nothing(recorded: RecordedSession) -> None:
    futures = recorded.submit(5)
    wait_until(lambda: len(recorded.made) == MIN_BATCHES, "two are made")
    recorded.session.close()
    assert recorded.closed.wait(60)
    assert (len(recorded.made), recorded.quota.batches) == (MIN_BATCHES, 0)
    for future in [*futures[MIN_BATCHES:], recorded.session.submit(Request(0, 0, 4, 4))]:
        with pytest.raises(ServerUnavailableError):
            future.result(60)


def test_delivered_answer_is_not_held(recorded: RecordedSession) -> None:
    gc.disable()  # or it would free reference cycles
    try:
        answers = [weakref.ref(future.result(60)) for future in recorded.submit(2)]
        wait_until(lambda: not any(answer() is not None for answer in answers), "both are freed")
    finally:
        gc.enable()
