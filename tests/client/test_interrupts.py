"""A feed under exceptions of signal handlers: raised at every bytecode, they lose nothing."""

from __future__ import annotations

import signal
import sys
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.client.interrupts import Interrupt, instructions_behind_the_delivery, interrupt
from tests.client.plans import plan_of
from tests.client.waiting import HANG_SECONDS

import infeed
from infeed.batch import Batch
from infeed.feed import Feed
from infeed.prefetch.ready_batches import EndOfFeed, ReadyBatches
from infeed.shared.spec import Normalize
from infeed.stats import StatsRecorder
from infeed.testing import FakeTransport
from infeed.wire.assembler import ReceivedBatch

BATCHES = 4


def feed_of(*, ready_at_once: bool) -> Feed:
    """Returns a feed without threads, whose batches are there at once, or when it waits for one."""
    items: list[Any] = []
    for step in range(BATCHES):
        ids = np.arange(4 * step, 4 * step + 4)
        batch = Batch({}, start=4 * step, epoch=0, sample_ids=ids, mask=ids >= 0)
        items.append(ReceivedBatch(step, batch, 32))
    items.append(EndOfFeed())

    def put_next() -> None:
        """Does what another thread does in reality, and so uninterrupted."""
        trace = sys.gettrace()
        sys.settrace(None)
        if items and not ready.items:
            ready.put(items.pop(0))
        sys.settrace(trace)

    ready = ReadyBatches(put_next)
    if ready_at_once:
        for item in items:
            ready.put(item)
        items.clear()
    recorder = StatsRecorder()
    prefetcher: Any = SimpleNamespace(
        ready=ready,
        start=lambda: None,
        stop=lambda: None,
        stats=lambda **_: recorder.stats(ready.progress),
        recorder=recorder,
        tracer=None,
    )
    return Feed(prefetcher, plan_of(prefetch_bytes=1))


@pytest.mark.parametrize("ready_at_once", [True, False])
def test_interrupt_at_any_bytecode_of_next_loses_nothing(ready_at_once: bool) -> None:
    for at in count():
        feed = feed_of(ready_at_once=ready_at_once)
        assert next(feed).start == 0
        interrupted = interrupt(feed.next, at)
        if not interrupted:
            break
        assert feed.state()["position"] == feed.stats().samples == 4
        for step in range(1, BATCHES):
            assert next(feed).start == 4 * step
            assert feed.state()["position"] == feed.stats().samples == 4 * step + 4
        assert list(feed) == []
        assert feed.stats().steps == BATCHES
    assert at > 100
    assert feed.state()["position"] == 8  # the last call was not interrupted


def test_interrupt_at_any_bytecode_of_the_end_loses_nothing() -> None:
    for at in count():
        feed = feed_of(ready_at_once=True)
        assert len([next(feed) for _ in range(BATCHES)]) == BATCHES
        if not interrupt(lambda feed=feed: list(feed), at):  # type: ignore[misc]
            break
        assert next(feed, None) is None
        assert feed.state()["position"] == 4 * BATCHES
    assert at > 50


def test_no_signal_handler_runs_between_delivery_and_return() -> None:
    """Python runs handlers after calls, at the start of functions, and at jumps back."""
    names = {instruction.opname for instruction in instructions_behind_the_delivery()}
    loads = {"LOAD_FAST", "LOAD_FAST_BORROW"}
    assert names <= loads | {"NOP", "POP_BLOCK", "JUMP_FORWARD", "RETURN_VALUE"}


@pytest.mark.parametrize("transforms", [(), (Normalize("x", scale=255.0),)])
def test_signals_during_real_training_lose_nothing(transforms: Any) -> None:
    """A timer raises at random places of the main thread, as Ctrl-C does."""
    inside = False

    def handle(*_: Any) -> None:
        if inside:
            raise Interrupt

    arrays = {"x": np.zeros((400, 8), np.uint8)}
    fake = FakeTransport(arrays, batch_size=4, shuffle=False, finish_transforms=transforms)
    before = signal.signal(signal.SIGPROF, handle)
    starts: list[int] = []
    interrupts = 0
    try:
        with infeed.connect("-", "fake", epochs=None, transport=fake) as feed:
            signal.setitimer(signal.ITIMER_PROF, 0.0007, 0.0007)
            deadline = time.monotonic() + HANG_SECONDS
            # A busy machine has few of these ticks.
            while (len(starts) < 800 or interrupts <= 10) and time.monotonic() < deadline:
                try:
                    inside = True
                    for batch in feed:  # noqa: B007 - `next` could be interrupted behind its end
                        inside = False
                        break
                    inside = False
                except Interrupt:
                    inside = False
                    interrupts += 1
                    continue
                starts.append(batch.start)
                assert feed.state()["position"] == 4 * len(starts)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert starts == [4 * k for k in range(len(starts))]
    assert len(starts) >= 800
    assert interrupts > 10
