"""The fair queue: everybody in turn, nobody more than their account has room for."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.client.waiting import blocked_in, until

from infeed_server.engines import budget
from infeed_server.engines.base import Request
from infeed_server.engines.budget import Account, Budget
from infeed_server.engines.queue import FairQueue
from infeed_server.engines.work import Work
from infeed_server.order import Order

Accounts = dict[str, Account]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Accounts]:
    """Accounts `a`, `b` and `c`, each with room for so many batches."""

    def open_streams(room: int) -> Accounts:
        monkeypatch.setattr(budget, "FEWEST", min(room, budget.FEWEST))
        monkeypatch.setattr(budget, "MOST", room)
        shared = Budget(1 << 40)
        accounts = {name: shared.open("p") for name in "abc"}
        for account in accounts.values():
            account.weigh(1)
        return accounts

    return open_streams


def work(owner: Account, start: int = 0) -> Work:
    return Work(Request(1, start, 2, 2), Order(10, 1), owner)


def owners(queue: FairQueue, accounts: Accounts) -> str:
    """Whose turn it is, until nobody's."""
    names = {id(account): name for name, account in accounts.items()}
    taken = ""
    while (item := queue.take(wait=False)) is not None:
        taken += names[id(item.owner)]
    return taken


def test_owners_take_turns(streams: Callable[[int], Accounts]) -> None:
    queue, accounts = FairQueue(), streams(10)
    for owner in "aaabbc":
        queue.put(work(accounts[owner]))
    assert owners(queue, accounts) == "abcaba"


def test_one_owner_keeps_its_order(streams: Callable[[int], Accounts]) -> None:
    queue, accounts = FairQueue(), streams(10)
    for start in (4, 2, 8):
        queue.put(work(accounts["a"], start))
    taken = [queue.take(wait=False) for _ in range(3)]
    assert [item.request.start for item in taken if item] == [4, 2, 8]


def test_an_owner_that_sends_nothing_holds_its_room_and_no_turn(
    streams: Callable[[int], Accounts],
) -> None:
    queue, accounts = FairQueue(), streams(2)
    for owner in "aaaab":
        queue.put(work(accounts[owner]))
    assert owners(queue, accounts) == "aba"
    assert (len(queue), accounts["a"].batches, accounts["b"].batches) == (2, 2, 1)
    queue.release(accounts["a"])
    assert owners(queue, accounts) == "a"


def test_what_is_sent_wakes_the_taker(streams: Callable[[int], Accounts]) -> None:
    queue, accounts = FairQueue(), streams(1)
    for owner in "aa":
        queue.put(work(accounts[owner]))
    assert owners(queue, accounts) == "a"
    taken: list[Work | None] = []
    taker = threading.Thread(target=lambda: taken.append(queue.take(wait=True)))
    taker.start()
    queue.release(accounts["a"])
    taker.join(60)
    assert [item.owner for item in taken if item] == [accounts["a"]]


@pytest.mark.parametrize("put", [FairQueue.put, FairQueue.put_back])
def test_work_wakes_the_taker(
    streams: Callable[[int], Accounts], put: Callable[[FairQueue, Work], bool]
) -> None:
    queue, item = FairQueue(), work(streams(1)["a"])
    taken: list[Work | None] = []
    taker = threading.Thread(target=lambda: taken.append(queue.take(wait=True)), daemon=True)
    taker.start()
    until(lambda: blocked_in(taker, "wait", "take"))
    assert put(queue, item)
    taker.join(60)
    assert taken == [item]


def test_work_that_is_put_back_comes_first_and_keeps_its_place(
    streams: Callable[[int], Accounts],
) -> None:
    queue, accounts = FairQueue(), streams(1)
    queue.put(work(accounts["a"]))
    first = queue.take(wait=False)
    assert first is not None
    queue.put(work(accounts["b"]))
    queue.put_back(first)
    assert owners(queue, accounts) == "ab"
    assert [account.batches for account in accounts.values()] == [1, 1, 0]


def test_a_dropped_owner_is_forgotten(streams: Callable[[int], Accounts]) -> None:
    queue, accounts = FairQueue(), streams(1)
    queue.put(work(accounts["a"]))
    queue.put(work(accounts["a"], 2))
    assert queue.take(wait=False) is not None
    assert len(queue.drop(accounts["a"])) == 1
    assert (accounts["a"].batches, accounts["a"].take()) == (0, False)
    queue.release(accounts["a"])
    assert (len(queue), accounts["a"].batches) == (0, 0)


def test_closing_wakes_the_taker_and_hands_out_what_is_left(
    streams: Callable[[int], Accounts],
) -> None:
    queue, accounts = FairQueue(), streams(1)
    taken: list[Work | None] = []
    taker = threading.Thread(target=lambda: taken.append(queue.take(wait=True)))
    taker.start()
    assert queue.close() == []
    taker.join(60)
    assert taken == [None]
    assert not queue.put(work(accounts["a"]))
    assert not queue.put_back(work(accounts["a"]))


def test_what_is_left_is_handed_out_once_and_put_back_work_with_it(
    streams: Callable[[int], Accounts],
) -> None:
    queue, accounts = FairQueue(), streams(1)
    first, second = (work(accounts[name]) for name in "ab")
    queue.put(first)
    assert queue.take(wait=False) is first
    queue.put_back(first)
    queue.put(second)
    assert queue.close() == [first, second]
    assert (len(queue), queue.close()) == (0, [])
