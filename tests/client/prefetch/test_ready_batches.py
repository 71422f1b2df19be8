"""Ready batches: order, progress, the limit, and threads that wait."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, blocked_in, until

from infeed.batch import Batch
from infeed.prefetch import ready_batches
from infeed.prefetch.ready_batches import EndOfFeed, ReadyBatches
from infeed.wire.assembler import ReceivedBatch


def batch(step: int) -> ReceivedBatch:
    ids = np.arange(4)
    return ReceivedBatch(
        step, Batch({}, start=4 * step, epoch=0, sample_ids=ids, mask=ids >= 0), 32
    )


def ready_of(batches: int, max_items: int | None = None) -> ReadyBatches:
    ready = ReadyBatches(lambda: None, max_items)
    for step in range(batches):
        ready.put(batch(step))
    return ready


def take(ready: ReadyBatches) -> int:
    """Takes the first batch, as a feed does."""
    item = ready.first(0.0)
    assert item is not None
    number = item.before.steps
    ready.announce(number)
    del ready.items[number]
    return number


def test_progress_survives_closing() -> None:
    ready = ready_of(3)
    take(ready)
    for _ in range(2):
        ready.close()
        assert (ready.first(0.0), ready.items, ready.progress.steps) == (None, {}, 1)
    ready.put(batch(3))
    assert ready.items == {}


@pytest.mark.parametrize("wake", [take, lambda ready: ready.close()], ids=["take", "close"])
def test_put_waits_while_there_is_no_space(wake: Any) -> None:
    ready = ready_of(2, max_items=2)
    thread = threading.Thread(target=ready.put, args=(batch(2),), daemon=True)
    thread.start()
    until(lambda: blocked_in(thread, "wait", "put"))
    wake(ready)
    thread.join(HANG_SECONDS)
    assert not thread.is_alive()


def test_every_waiting_thread_gets_an_item_or_the_end() -> None:
    ready = ready_of(0)
    got: list[Any] = []

    def wait() -> None:
        while (item := ready.first(HANG_SECONDS)) is None:
            pass
        got.append(item.item)

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: all(blocked_in(thread, "wait", "first") for thread in threads))
    ready.put(EndOfFeed())
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert got == [EndOfFeed()] * 3


def test_wait_is_bounded_if_an_interrupt_loses_the_wake_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ready = ready_of(0)
    waits: list[float] = []
    monkeypatch.setattr(ready._arrived, "wait", waits.append)
    assert ready.first(1e6) is None
    assert waits == [ready_batches._MAX_WAIT_SECONDS]
