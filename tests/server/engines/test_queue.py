"""The fair queue: everybody in turn, nobody more than their share."""

from __future__ import annotations

import threading

from infeed_server.engines.base import Request
from infeed_server.engines.queue import FairQueue
from infeed_server.engines.work import Work
from infeed_server.order import Order


def work(owner: str, start: int = 0) -> Work:
    return Work.plan(Request(1, start, 2, 2), Order(10, 1), owner)


def owners(queue: FairQueue) -> list[object]:
    taken = []
    while (item := queue.take(wait=False)) is not None:
        taken.append(item.owner)
    return taken


def test_owners_take_turns() -> None:
    queue = FairQueue(limit=10)
    for owner in "aaabbc":
        queue.put(work(owner))
    assert owners(queue) == ["a", "b", "c", "a", "b", "a"]


def test_one_owner_keeps_its_order() -> None:
    queue = FairQueue(limit=10)
    for start in (4, 2, 8):
        queue.put(work("a", start))
    taken = [queue.take(wait=False) for _ in range(3)]
    assert [item.request.start for item in taken if item] == [4, 2, 8]


def test_an_owner_that_sends_nothing_holds_its_limit_and_no_more() -> None:
    queue = FairQueue(limit=2)
    for owner in "aaaab":
        queue.put(work(owner))
    assert owners(queue) == ["a", "b", "a"]
    assert (len(queue), queue.taken) == (2, 3)
    queue.release("a")
    assert owners(queue) == ["a"]


def test_work_that_is_put_back_comes_first_and_keeps_its_place() -> None:
    queue = FairQueue(limit=1)
    queue.put(work("a"))
    first = queue.take(wait=False)
    assert first is not None
    queue.put(work("b"))
    queue.put_back(first)
    assert owners(queue) == ["a", "b"]
    assert queue.taken == 2


def test_a_dropped_owner_is_forgotten() -> None:
    queue = FairQueue(limit=1)
    queue.put(work("a"))
    queue.put(work("a", 2))
    assert queue.take(wait=False) is not None
    assert len(queue.drop("a")) == 1
    queue.release("a")
    assert (len(queue), queue.taken) == (0, 0)


def test_closing_wakes_the_taker_and_hands_out_what_is_left() -> None:
    queue = FairQueue(limit=1)
    taken: list[Work | None] = []
    taker = threading.Thread(target=lambda: taken.append(queue.take(wait=True)))
    taker.start()
    assert queue.close() == []
    taker.join(10)
    assert taken == [None]
    assert not queue.put(work("a"))
    assert not queue.put_back(work("a"))
