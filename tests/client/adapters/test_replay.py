"""`infeed.headspace`: replayed batches, and the feed that keeps them."""

from __future__ import annotations

import threading
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, until

import infeed
from infeed.adapters.replay import Headspace
from infeed.shared.errors import FeedClosedError, InvalidRequestError, StallError
from infeed.shared.spec import Cast
from infeed.testing import FakeTransport

FLOAT = Cast("image", "float32")


def connect(transport: FakeTransport, **options: Any) -> infeed.Feed:
    return infeed.connect("fake", "fake", transport=transport, **options)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infeed.adapters.replay._QUIET_SECONDS", 0.02)


@pytest.mark.parametrize("finish", [[], [FLOAT]])
def test_the_feed_delivers_each_batch_once_afterwards(arrays: Any, finish: Any) -> None:
    transport = FakeTransport(arrays, batch_size=4, finish_transforms=finish)
    with connect(transport, epochs=1) as feed, connect(transport, epochs=1) as other:
        expected = list(other)
        taken = list(islice(feed, 3))
        state = feed.state()
        with infeed.headspace(feed, batches=5, steps=7) as replay:
            seen = []
            for batch in replay:
                seen.append(batch.start)
                batch["image"] += 1  # as a step may
        assert feed.state() == state
        taken += feed
    starts = [batch.start for batch in expected]
    assert seen == [*starts[:5], *starts[:5], *starts[:2]]
    assert [batch.start for batch in taken] == starts
    for ours, theirs in zip(taken, expected, strict=True):
        np.testing.assert_array_equal(ours["image"], theirs["image"])
    result = replay.result()
    assert (result.batches, result.steps) == (5, 7)


def test_the_step_before_is_that_of_the_feed(fake: FakeTransport) -> None:
    with connect(fake) as feed:
        until(lambda: next(feed) and feed.stats().report.steps >= 2)
        with infeed.headspace(feed, steps=2) as replay:
            list(replay)
        result = replay.result()
    assert result.current_step_seconds is not None
    assert result.wait_seconds is not None


@pytest.mark.parametrize(("taken", "mean"), [(6, 4.5), (5, 3.5)])
def test_the_step_time_is_the_mean_of_the_measured_steps(
    fake: FakeTransport, monkeypatch: pytest.MonkeyPatch, taken: int, mean: float
) -> None:
    now = 100.0
    with connect(fake) as feed, infeed.headspace(feed, batches=2, steps=4) as replay:
        monkeypatch.setattr("infeed.adapters.replay.time", SimpleNamespace(monotonic=lambda: now))
        for number, _ in enumerate(replay):
            if number + 1 == taken < 6:
                break  # within a step, which does not count
            now += 9.0 if number < 2 else 1.0 + number
        assert replay.result().step_seconds == mean  # of 3, 4, 5 and 6 seconds


def test_a_result_is_one_line() -> None:
    result = Headspace(0.02, 0.05, 0.03, 8, 50)
    assert str(result) == (
        "a step takes 50.00 ms, of which 30.00 ms are waits; with an infinitely fast input it "
        "would take 20.00 ms: 2.50 times as fast (50 steps over 8 batches)"
    )
    assert "take batches of the feed first" in str(Headspace(0.02, None, None, 8, 50))


def test_fewer_batches_than_asked_for_are_replayed() -> None:
    with connect(FakeTransport({"x": np.arange(9)}, batch_size=4), epochs=1) as feed:
        with infeed.headspace(feed, batches=8, steps=3) as replay:
            assert len(list(replay)) == 8 + 3  # the same number on every rank
        assert replay.result().batches == 2
        assert len(list(feed)) == 2


def test_it_waits_until_the_feed_has_prefetched_all(
    arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infeed.adapters.replay._QUIET_SECONDS", 0.5)
    transport = FakeTransport(arrays, batch_size=4)
    with connect(transport, prefetch_batches=5) as feed, infeed.headspace(feed, batches=2):
        prefetched = feed.stats().prefetched_bytes
        next(feed)
        assert prefetched == 5 * feed.stats().bytes


def test_problems_are_named(fake: FakeTransport) -> None:
    stuck = FakeTransport({"x": np.arange(9)}, before_batch=lambda _: gate.wait(HANG_SECONDS))
    gate = threading.Event()
    with connect(stuck) as feed:
        with pytest.raises(StallError, match="no batch within 0 s"):
            infeed.headspace(feed, timeout=0).__enter__()
        gate.set()
    with pytest.raises(FeedClosedError):
        infeed.headspace(feed).__enter__()
    with connect(fake) as feed:
        with pytest.raises(InvalidRequestError, match="batches must be"):
            infeed.headspace(feed, batches=0)
        with pytest.raises(InvalidRequestError, match="batches must be"):
            infeed.headspace(feed, batches=65)
        with pytest.raises(InvalidRequestError, match="steps must be"):
            infeed.headspace(feed, steps=0)
        with infeed.headspace(feed) as replay:
            next(iter(replay))
        with pytest.raises(InvalidRequestError, match="has made no step after the first 8"):
            replay.result()
        with pytest.raises(InvalidRequestError, match="enter it"):
            next(iter(infeed.headspace(feed)))
    with pytest.raises(InvalidRequestError, match="not list"):
        infeed.headspace([])  # type: ignore[arg-type]
