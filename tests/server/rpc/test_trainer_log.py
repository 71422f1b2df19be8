"""The log of trainers: its lines, their number, and how the end of a stream is called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

import infeed
from infeed.v1 import stream_pb2
from infeed_server.rpc.trainer_log import FeedProgress, TrainerLog


class Timers:
    """A clock, and the functions that are due at times of it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def schedule(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        entry = (self.now + seconds, function)
        self._due.append(entry)
        return lambda: self._due.remove(entry) if entry in self._due else None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for entry in [each for each in self._due if each[0] <= self.now]:
            self._due.remove(entry)
            entry[1]()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Returns the lines since its last call."""

    def take() -> list[str]:
        messages = [each.getMessage() for each in caplog.records if "trainer_log" in each.name]
        caplog.clear()
        return messages

    with caplog.at_level(logging.INFO, logger="infeed_server"):
        yield take


def begun(log: TrainerLog, rank: int = 0, feed_id: str = "0123456789") -> FeedProgress:
    message = stream_pb2.StreamOpen(pipeline="n", rank=rank, world_size=500, feed_id=feed_id)
    feed = FeedProgress(message, "10.0.0.7:5", log.on_begin)
    batch = stream_pb2.BatchRequest(start=40, count=4)
    list(feed.watch(iter([stream_pb2.StreamBatchesRequest(batch=batch)])))
    return feed


def test_a_burst_is_one_line_and_a_count(lines: Callable[[], list[str]]) -> None:
    timers = Timers()
    log = TrainerLog(lambda: timers.now, timers.schedule)
    feeds = [begun(log, rank) for rank in range(300)]
    assert lines() == [
        "trainer connected: n, rank 0 of 500, feed 01234567, position 40, 10.0.0.7:5"
    ]
    for feed in feeds[:20]:
        log.on_end(feed, grpc.StatusCode.CANCELLED)
    timers.sleep(0.9)
    assert lines() == []
    timers.sleep(0.2)
    assert lines() == ["trainers; without a line: 299 connected, 20 left"]
    begun(log, 7)
    assert lines() == [], "a second has not passed since the count"
    timers.sleep(60)
    assert lines() == ["trainers; without a line: 1 connected"]
    begun(log, 8)
    begun(log, 9)
    log.close()
    assert [line.split(":")[0] for line in lines()] == ["trainers; without a line"]


def test_count_is_in_the_next_line_where_no_timer_could_start(
    lines: Callable[[], list[str]],
) -> None:
    timers = Timers()
    log = TrainerLog(lambda: timers.now, lambda *_: lambda: None)
    begun(log)
    begun(log)
    timers.now += 2
    begun(log)
    assert [line.partition(";")[2] for line in lines()] == ["", " without a line: 1 connected"]


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
    assert position >= batch.start + 4
