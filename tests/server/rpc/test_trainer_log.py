"""The log of trainers: its lines, their number, and how the end of a stream is called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import infeed
from infeed_server.observe.jobs import ConnectedTrainer, JobKey
from infeed_server.rpc.trainer_log import TrainerLog


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Returns the lines since its last call."""

    def take() -> list[str]:
        messages = [line.getMessage() for line in caplog.records if "trainer_log" in line.name]
        caplog.clear()
        return messages

    with caplog.at_level(logging.INFO, logger="infeed_server"):
        yield take


def begun(log: TrainerLog, rank: int = 0, feed_id: str = "0123456789") -> ConnectedTrainer:
    key = JobKey("n", seed=7, batch_size=4, world_size=500)
    trainer = ConnectedTrainer(key, rank, feed_id, "10.0.0.7:5", 0.0, position=40)
    log.on_begin(trainer)
    return trainer


def test_a_burst_is_one_line_and_a_count(lines: Callable[[], list[str]]) -> None:
    now = 1000.0
    log = TrainerLog(lambda: now)
    feeds = [begun(log, rank) for rank in range(300)]
    assert lines() == [
        "trainer connected: n, rank 0 of 500, feed 01234567, position 40, 10.0.0.7:5"
    ]
    for feed in feeds[:20]:
        log.on_end(feed, grpc.StatusCode.CANCELLED)
    assert lines() == []
    log.flush()
    log.flush()
    assert lines() == ["trainers; without a line: 299 connected, 20 left"]
    begun(log, 7)
    assert lines() == [], "a second has not passed since the count"
    now += 1.5
    begun(log, 8)
    log.flush()
    assert lines()[1:] == ["trainers; without a line: 1 connected"]


def test_id_of_a_feed_cannot_break_the_line(lines: Callable[[], list[str]]) -> None:
    begun(TrainerLog(), feed_id="a\nb\u2028" + "x" * 1000)
    assert ", feed a\\nb\\u2028xxxx, position" in lines()[0]


def test_end_of_a_trainer_is_logged_with_its_position(
    start: Any,
    eventually: Any,
    lines: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("infeed_server.rpc.trainer_log.LINE_INTERVAL_SECONDS", 0.0)
    live = start()
    options = {"shard": infeed.Shard(1, 2), "prefetch_bytes": 1}
    with infeed.connect(live.address, "held", **options) as feed:
        for _ in range(3):
            batch = feed.next(60)
    seen: list[str] = []
    eventually(lambda: seen.extend(lines()) or len(seen) > 1, "the end is logged")
    assert seen[0].startswith("trainer connected: held, rank 1 of 2, feed ")
    assert "position 4, 127.0.0.1:" in seen[0]
    assert seen[1].startswith("trainer left: held, rank 1 of 2, feed ")
    position = int(seen[1].partition("position ")[2].partition(",")[0])
    assert position >= batch.start - 4  # the last batch counts as sent only afterwards
