"""Tests of the rank tracker: the low watermark, timeouts, reconnects and feeds."""

from __future__ import annotations

from typing import Any

import pytest

from infeed_server.engines.base import Request, Trainer
from infeed_server.engines.sequential.ranks import (
    DISCONNECT_TIMEOUT_SECONDS,
    IDLE_TIMEOUT_SECONDS,
    RankStream,
    RankTracker,
)

STEP = 8


def trainer(rank: int, world_size: int = 2, feed: str = "job") -> Trainer:
    return Trainer(rank, world_size, f"{feed} {rank}")


def ask(ranks: RankTracker, stream: RankStream, position: int) -> None:
    ranks.on_request(stream, Request(0, position, 4, 4))


def receive(ranks: RankTracker, stream: RankStream, position: int, *, sent: bool = True) -> None:
    ask(ranks, stream, position)
    ranks.on_answer(stream)
    if sent:
        ranks.on_sent(stream, position)


def test_missing_rank_holds_the_low_watermark_until_timeout(clock: Any) -> None:
    ranks = RankTracker(2, 40, STEP, clock)
    stream = ranks.connect(trainer(0))
    for step in range(5):
        receive(ranks, stream, 40 + STEP * step)
    assert (ranks.low_watermark(), ranks.slowest, ranks.missing) == (40, [1], [1])
    clock.now += DISCONNECT_TIMEOUT_SECONDS - 1
    ask(ranks, stream, 80)
    assert ranks.low_watermark() == 40
    clock.now += 1
    assert (ranks.low_watermark(), ranks.slowest) == (80, [0])


def test_low_watermark_is_the_slowest_rank(clock: Any) -> None:
    ranks = RankTracker(2, 0, STEP, clock)
    first, second = (ranks.connect(trainer(rank)) for rank in (0, 1))
    assert ranks.low_watermark() == 0
    receive(ranks, first, 0)
    assert (ranks.low_watermark(), ranks.slowest) == (0, [1])
    receive(ranks, second, 4, sent=False)
    assert ranks.low_watermark() == 4  # unsent, so it may be requested again
    ranks.on_sent(second, 4)
    assert (ranks.low_watermark(), ranks.slowest) == (8, [0])


@pytest.mark.parametrize("disconnected", [True, False])
def test_disconnected_or_idle_rank_leaves_after_timeout(clock: Any, disconnected: bool) -> None:
    ranks = RankTracker(2, 0, STEP, clock)
    first, second = (ranks.connect(trainer(rank)) for rank in (0, 1))
    receive(ranks, first, 0)
    receive(ranks, second, 4)
    if disconnected:
        ranks.disconnect(second)
    receive(ranks, first, 8)
    clock.now += (DISCONNECT_TIMEOUT_SECONDS if disconnected else IDLE_TIMEOUT_SECONDS) - 1
    receive(ranks, first, 16)
    assert ranks.low_watermark() == 12
    clock.now += 1
    assert ranks.low_watermark() == 24
    if disconnected:
        second = ranks.connect(trainer(1))
    ask(ranks, second, 12)
    assert ranks.low_watermark() == 12  # it counts again


def test_waiting_rank_is_not_idle(clock: Any) -> None:
    ranks = RankTracker(1, 0, STEP, clock)
    ask(ranks, ranks.connect(trainer(0, 1)), 1 << 40)
    clock.now += 10 * IDLE_TIMEOUT_SECONDS
    assert ranks.low_watermark() == 1 << 40


def test_reconnected_rank_repeats_its_requests(clock: Any) -> None:
    ranks = RankTracker(1, 0, STEP, clock)
    old = ranks.connect(trainer(0, 1))
    for step in range(4):
        receive(ranks, old, STEP * step)
    assert ranks.low_watermark() == 32
    # Its new stream opens before the end of the old one is noticed.
    ask(ranks, ranks.connect(trainer(0, 1)), 24)
    ranks.disconnect(old)
    assert (ranks.idle_seconds, ranks.low_watermark()) == (None, 24)


def test_rank_belongs_to_one_feed(clock: Any) -> None:
    ranks = RankTracker(2, 0, STEP, clock)
    stream = ranks.connect(trainer(0))
    assert ranks.has_feed(trainer(0))
    other = trainer(0, feed="other")
    assert not ranks.has_feed(other)
    assert not ranks.is_free(other)
    assert ranks.is_free(trainer(1, feed="other"))
    assert not ranks.is_free(trainer(1, world_size=3))
    assert ranks.all_connected
    ranks.disconnect(stream)
    assert not ranks.all_connected
    clock.now += 5
    assert ranks.idle_seconds == 5
    ranks.connect(other)
    ranks.on_sent(stream, 800)  # of the rank's former feed
    assert (ranks.idle_seconds, ranks.low_watermark()) == (None, 0)
