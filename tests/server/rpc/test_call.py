"""The log of trainers: its lines, and how the end of a stream is called."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import infeed
from infeed_server.rpc.call import log_trainer
from infeed_server.serving.instrument import ConnectedTrainer


def test_id_of_a_feed_cannot_break_the_line(caplog: pytest.LogCaptureFixture) -> None:
    feed = "a\nb\u2028" + "x" * 1000
    trainer = ConnectedTrainer("n", 0, feed, "10.0.0.7:5", world_size=500, position=40)
    with caplog.at_level(logging.INFO, logger="infeed_server"):
        log_trainer("connected", trainer)
    feed = "a\\nb\\u2028xxxx"
    (line,) = (line for line in caplog.messages if "10.0.0.7:5" in line)  # others may end now
    assert line == f"trainer connected: n, rank 0 of 500, feed {feed}, position 40, 10.0.0.7:5"


def test_end_of_a_trainer_is_logged_with_its_position(
    live: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"shard": infeed.Shard(1, 2), "prefetch_bytes": 1}
    with caplog.at_level(logging.INFO, logger="infeed_server"):
        with infeed.connect(live.address, "held", **options) as feed:
            for _ in range(3):
                batch = feed.next(60)
        eventually(lambda: len(caplog.messages) > 1, "the end is logged")
    first, last = caplog.messages
    assert first.startswith("trainer connected: held, rank 1 of 2, feed ")
    assert "position 4, 127.0.0.1:" in first
    assert last.startswith("trainer left: held, rank 1 of 2, feed ")
    position = int(last.partition("position ")[2].partition(",")[0])
    assert position >= batch.start - 4  # the last batch counts as sent only afterwards
