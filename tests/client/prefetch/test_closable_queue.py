"""Closable queue: order, limit and closing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.client.waiting import HANG_SECONDS, blocked_in, until

from infeed.prefetch.closable_queue import ClosableQueue, QueueClosedError


class BlockedCall:
    """A queue operation that blocks, on a thread of its own."""

    def __init__(self, function: str, call: Callable[[], object]) -> None:
        self.result: object = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        until(lambda: blocked_in(self._thread, "wait", function))

    def _run(self) -> None:
        try:
            self.result = self._call()
        except QueueClosedError as error:
            self.result = error

    def join(self) -> object:
        self._thread.join(HANG_SECONDS)
        assert not self._thread.is_alive()
        return self.result


def test_items_are_returned_in_order() -> None:
    queue: ClosableQueue[int] = ClosableQueue()
    for item in range(100):
        queue.put(item)
    assert [queue.get() for _ in range(100)] == list(range(100))


def test_put_waits_while_the_queue_is_full() -> None:
    queue: ClosableQueue[int] = ClosableQueue(2)
    queue.put(0)
    queue.put(1)
    sender = BlockedCall("put", lambda: queue.put(2))
    assert queue.get() == 0
    sender.join()
    assert [queue.get(), queue.get()] == [1, 2]


def test_put_wakes_a_waiting_get() -> None:
    queue: ClosableQueue[int] = ClosableQueue()
    receiver = BlockedCall("get", queue.get)
    queue.put(7)
    assert receiver.join() == 7


@pytest.mark.parametrize("timeout", [0.01, 0, -1])
def test_get_from_an_empty_queue_times_out(timeout: float) -> None:
    queue: ClosableQueue[int] = ClosableQueue()
    with pytest.raises(TimeoutError):
        queue.get(timeout)
    queue.put(1)
    assert queue.get(timeout) == 1


def test_close_discards_items_and_wakes_both_sides() -> None:
    full: ClosableQueue[int] = ClosableQueue(1)
    full.put(0)
    sender = BlockedCall("put", lambda: full.put(1))
    empty: ClosableQueue[int] = ClosableQueue()
    receiver = BlockedCall("get", empty.get)
    for queue in (full, empty, full):
        queue.close()
    assert isinstance(sender.join(), QueueClosedError)
    assert isinstance(receiver.join(), QueueClosedError)
    assert not full._items
    for queue in (full, empty):
        with pytest.raises(QueueClosedError):
            queue.put(2)
        with pytest.raises(QueueClosedError):
            queue.get()
        assert not queue._items
