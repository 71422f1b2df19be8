"""Where ranks are that share a reading: whom the others wait for, and how long."""

from __future__ import annotations

import pytest

from infeed_server.engines.base import Trainer
from infeed_server.engines.ranks import AWAY_SECONDS, IDLE_SECONDS, Ranks

STEP = 8


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def trainer(rank: int, world_size: int = 2, feed: str = "job") -> Trainer:
    return Trainer(rank, world_size, f"{feed} {rank}")


def take(ranks: Ranks, rank: int, position: int) -> None:
    ranks.asks(rank, position)
    ranks.answered(rank)
    ranks.sent(trainer(rank, ranks.world_size), position)


def test_a_rank_that_has_not_come_yet_is_waited_for(clock: Clock) -> None:
    ranks = Ranks(2, 40, STEP, clock)
    ranks.enter(trainer(0))
    for step in range(5):
        take(ranks, 0, 40 + STEP * step)
    assert (ranks.floor(), ranks.slowest, ranks.missing) == (40, [1], [1])
    clock.now += AWAY_SECONDS - 1
    ranks.asks(0, 80)
    assert ranks.floor() == 40
    clock.now += 1
    assert (ranks.floor(), ranks.slowest) == (80, [0])


def test_the_slowest_is_the_floor(clock: Clock) -> None:
    ranks = Ranks(2, 0, STEP, clock)
    for rank in (0, 1):
        ranks.enter(trainer(rank))
    assert ranks.floor() == 0
    take(ranks, 0, 0)
    assert (ranks.floor(), ranks.slowest) == (0, [1])
    ranks.asks(1, 4)
    ranks.answered(1)
    assert ranks.floor() == 4  # what is made and not sent may be asked for again
    ranks.sent(trainer(1), 4)
    assert (ranks.floor(), ranks.slowest) == (8, [0])


@pytest.mark.parametrize("gone", [True, False])
def test_one_that_is_gone_or_idle_counts_as_left_in_the_end(clock: Clock, gone: bool) -> None:
    ranks = Ranks(2, 0, STEP, clock)
    for rank in (0, 1):
        ranks.enter(trainer(rank))
        take(ranks, rank, 4 * rank)
    if gone:
        ranks.leave(trainer(1))
    take(ranks, 0, 8)
    clock.now += (AWAY_SECONDS if gone else IDLE_SECONDS) - 1
    take(ranks, 0, 16)
    assert ranks.floor() == 12
    clock.now += 1
    assert ranks.floor() == 24
    # Back again, it is waited for as before.
    if gone:
        ranks.enter(trainer(1))
    ranks.asks(1, 12)
    assert ranks.floor() == 12


def test_one_that_waits_is_not_idle(clock: Clock) -> None:
    ranks = Ranks(1, 0, STEP, clock)
    ranks.enter(trainer(0, 1))
    ranks.asks(0, 1 << 40)
    clock.now += 10 * IDLE_SECONDS
    assert ranks.floor() == 1 << 40


def test_one_that_comes_back_asks_again_for_what_it_had_asked(clock: Clock) -> None:
    ranks = Ranks(1, 0, STEP, clock)
    ranks.enter(trainer(0, 1))
    for step in range(4):
        take(ranks, 0, STEP * step)
    assert ranks.floor() == 32
    # Its new stream comes before the end of the old one is noticed.
    ranks.enter(trainer(0, 1))
    ranks.asks(0, 24)
    ranks.leave(trainer(0, 1))
    assert ranks.deserted is None
    assert ranks.floor() == 24


def test_whose_a_seat_is(clock: Clock) -> None:
    ranks = Ranks(2, 0, STEP, clock)
    ranks.enter(trainer(0))
    assert ranks.knows(trainer(0))
    assert not ranks.knows(trainer(0, feed="other"))
    assert not ranks.seats(trainer(0, feed="other"))
    assert ranks.seats(trainer(1, feed="other"))
    assert not ranks.seats(trainer(1, world_size=3))
    assert ranks.whole
    ranks.leave(trainer(0))
    assert not ranks.whole
    clock.now += 5
    assert ranks.deserted == 5
    ranks.enter(trainer(0, feed="other"))
    ranks.sent(trainer(0), 800)  # of the feed whose seat it was
    assert (ranks.deserted, ranks.floor()) == (None, 0)
