"""Tests of the fair queue: streams take turns, each within its quota."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from tests.client.waiting import blocked_in, until

from infeed.shared.errors import ServerError, ServerUnavailableError
from infeed_server.engines import memory_budget
from infeed_server.engines.base import Request
from infeed_server.engines.indexed.batch_task import BatchTask
from infeed_server.engines.indexed.fair_queue import FairQueue
from infeed_server.engines.memory_budget import MemoryBudget, StreamQuota
from infeed_server.order import RunOrder, SampleOrder

Quotas = dict[str, StreamQuota]


@pytest.fixture
def open_quotas(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Quotas]:
    """`open_quotas(limit)`: quotas `a`, `b` and `c` of `limit` batches each."""

    def open_all(limit: int) -> Quotas:
        monkeypatch.setattr(memory_budget, "MIN_BATCHES", min(limit, memory_budget.MIN_BATCHES))
        monkeypatch.setattr(memory_budget, "MAX_BATCHES", limit)
        budget = MemoryBudget(1 << 40)
        quotas = {name: budget.open_quota("p") for name in "abc"}
        for quota in quotas.values():
            quota.set_batch_bytes(1)
        return quotas

    return open_all


def new_task(quota: StreamQuota, start: int = 0) -> BatchTask:
    return BatchTask(Request(1, start, 2, 2), RunOrder.of(SampleOrder(10, 1)), quota)


def release(queue: FairQueue, quota: StreamQuota) -> None:
    quota.release()
    queue.wake()


def turns(queue: FairQueue, quotas: Quotas) -> str:
    """Takes all tasks that the quotas allow; returns the names of their streams."""
    names = {id(quota): name for name, quota in quotas.items()}
    taken = ""
    while (task := queue.take(wait=False)) is not None:
        taken += names[id(task.quota)]
    return taken


def test_arrays_of_all_slots_become_the_batch(
    open_quotas: Callable[[int], Quotas],
) -> None:
    task, made = new_task(open_quotas(1)["a"]), np.array([[7], [0]])
    task.assign_samples()
    task.put(np.arange(2), {"x": made}, np.array([True, False]))
    assert task.left.tolist() == [1]
    task.put(task.left, {"x": np.array([[8]])})
    assert not len(task.left)
    task.mask[0] = False
    assert task.to_batch().arrays["x"] is made
    assert made.tolist() == [[0], [8]]


def test_masked_slot_leaves_the_arrays_of_others_unchanged(
    open_quotas: Callable[[int], Quotas],
) -> None:
    task, theirs = new_task(open_quotas(1)["a"]), np.array([[7], [8]])
    task.assign_samples()
    task.put(np.arange(2), {"x": theirs})
    task.mask[0] = False
    assert task.to_batch().arrays["x"].tolist() == [[0], [8]]
    assert theirs.tolist() == [[7], [8]]


def test_streams_take_turns(open_quotas: Callable[[int], Quotas]) -> None:
    queue, quotas = FairQueue(), open_quotas(10)
    for name in "aaabbc":
        queue.put(new_task(quotas[name]))
    assert turns(queue, quotas) == "abcaba"


def test_stalled_stream_holds_its_quota_and_no_turn(
    open_quotas: Callable[[int], Quotas],
) -> None:
    queue, quotas = FairQueue(), open_quotas(2)
    for name in "aaaab":
        queue.put(new_task(quotas[name]))
    assert turns(queue, quotas) == "aba"
    assert (len(queue), quotas["a"].batches, quotas["b"].batches) == (2, 2, 1)
    release(queue, quotas["a"])
    assert turns(queue, quotas) == "a"


def test_task_wakes_the_consumer(open_quotas: Callable[[int], Quotas]) -> None:
    queue, task = FairQueue(), new_task(open_quotas(1)["a"])
    taken: list[BatchTask | None] = []
    consumer = threading.Thread(target=lambda: taken.append(queue.take(wait=True)), daemon=True)
    consumer.start()
    until(lambda: blocked_in(consumer, "wait", "take"))
    queue.put(task)
    consumer.join(60)
    assert taken == [task]


def test_removed_stream_holds_nothing(open_quotas: Callable[[int], Quotas]) -> None:
    queue, quotas = FairQueue(), open_quotas(1)
    first, waiting = new_task(quotas["a"]), new_task(quotas["a"], 2)
    queue.put(first), queue.put(waiting)
    assert queue.take(wait=False) is first
    queue.remove(quotas["a"])
    assert (waiting.future.cancelled(), first.future.cancelled()) == (True, False)
    assert (quotas["a"].batches, quotas["a"].try_acquire()) == (0, False)
    release(queue, quotas["a"])
    assert (len(queue), quotas["a"].batches) == (0, 0)


def test_close_wakes_the_consumer_and_fails_all_tasks(
    open_quotas: Callable[[int], Quotas],
) -> None:
    queue, quotas = FairQueue(), open_quotas(0)
    waiting, late = (new_task(quotas[name]) for name in "ab")
    queue.put(waiting)
    taken: list[BatchTask | None] = []
    consumer = threading.Thread(target=lambda: taken.append(queue.take(wait=True)))
    consumer.start()
    queue.close(ServerError("it failed"))
    consumer.join(60)
    assert taken == [None]
    queue.put(late)
    with pytest.raises(ServerError, match="it failed"):
        waiting.future.result(0)
    with pytest.raises(ServerUnavailableError, match="shutting down"):
        late.future.result(0)
    assert not len(queue)
