"""The queue between threads: its limit, its order, and its end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.client.waiting import HANG_SECONDS, blocked_in, until

from infeed.handoff import Handoff, HandoffClosedError


class Waiting:
    """A call on a thread of its own, which waits in the handoff."""

    def __init__(self, function: str, call: Callable[[], object]) -> None:
        self.result: object = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        until(lambda: blocked_in(self._thread, "wait", function))

    def _run(self) -> None:
        try:
            self.result = self._call()
        except HandoffClosedError as error:
            self.result = error

    def end(self) -> object:
        self._thread.join(HANG_SECONDS)
        assert not self._thread.is_alive()
        return self.result


def test_items_leave_in_order() -> None:
    queue: Handoff[int] = Handoff()
    for item in range(100):
        queue.put(item)
    assert [queue.get() for _ in range(100)] == list(range(100))


def test_a_full_one_makes_the_sender_wait_for_room() -> None:
    queue: Handoff[int] = Handoff(2)
    queue.put(0)
    queue.put(1)
    sender = Waiting("put", lambda: queue.put(2))
    assert queue.get() == 0
    sender.end()
    assert [queue.get(), queue.get()] == [1, 2]


def test_an_item_wakes_the_receiver() -> None:
    queue: Handoff[int] = Handoff()
    receiver = Waiting("get", queue.get)
    queue.put(7)
    assert receiver.end() == 7


@pytest.mark.parametrize("timeout", [0.01, 0, -1])
def test_nothing_in_time_is_a_timeout(timeout: float) -> None:
    queue: Handoff[int] = Handoff()
    with pytest.raises(TimeoutError):
        queue.get(timeout)
    queue.put(1)
    assert queue.get(timeout) == 1


def test_close_drops_what_is_inside_and_wakes_both_ends() -> None:
    full: Handoff[int] = Handoff(1)
    full.put(0)
    sender = Waiting("put", lambda: full.put(1))
    empty: Handoff[int] = Handoff()
    receiver = Waiting("get", empty.get)
    for queue in (full, empty, full):
        queue.close()
    assert isinstance(sender.end(), HandoffClosedError)
    assert isinstance(receiver.end(), HandoffClosedError)
    assert not full._items
    for queue in (full, empty):
        with pytest.raises(HandoffClosedError):
            queue.put(2)
        with pytest.raises(HandoffClosedError):
            queue.get()
        assert not queue._items
