"""Tests of the connection that the first batch opens."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest
from tests.client.runs import amended_run
from tests.client.waiting import HANG_SECONDS

import infeed
from infeed.testing import FakeTransport
from infeed_frameworks import feed_adapter
from infeed_frameworks.feed_adapter import FeedAdapter


def fake() -> FakeTransport:
    return FakeTransport({"x": np.arange(24)}, batch_size=4)


def test_nothing_is_connected_before_open() -> None:
    transport = fake()
    feed = FeedAdapter("fake", "fake", transport=transport)
    assert transport.streams == 0
    assert feed.feed is feed.feed
    feed.close()


def test_target_is_checked_before_a_connection() -> None:
    with pytest.raises(infeed.InvalidRequestError, match="'localhost' has no host and port"):
        FeedAdapter("localhost", "fake")


def test_feed_can_be_given() -> None:
    with infeed.connect("fake", "fake", transport=fake()) as given:
        feed = FeedAdapter(given)
        assert feed.feed is given
        with pytest.raises(infeed.InvalidRequestError, match="of a connected feed"):
            feed.load_state(given.state())
        feed.close()
        with pytest.raises(infeed.FeedClosedError):
            next(given)


def test_feed_with_more_arguments_is_refused() -> None:
    problem = "cannot take pipeline, epochs, seed"
    with (
        infeed.connect("fake", "fake", transport=fake()) as given,
        pytest.raises(infeed.InvalidRequestError, match=problem),
    ):
        FeedAdapter(given, "fake", seed=1, epochs=2)


def test_pipeline_is_required() -> None:
    with pytest.raises(infeed.InvalidRequestError, match="pipeline is missing"):
        FeedAdapter("fake:1")


@pytest.mark.parametrize("opened", [False, True])
def test_loaded_state_is_where_the_next_open_begins(opened: bool) -> None:
    with infeed.connect("fake", "fake", transport=fake()) as other:
        next(other)
        state, expected = other.state(), next(other)["x"]
    feed = FeedAdapter("fake", "fake", transport=fake())
    before = feed.feed if opened else None
    feed.load_state(state)
    np.testing.assert_array_equal(next(feed.feed)["x"], expected)
    if before is not None:
        with pytest.raises(infeed.FeedClosedError):
            next(before)
    feed.close()


def test_state_that_is_no_cursor_is_refused_and_changes_nothing() -> None:
    feed = FeedAdapter("fake", "fake", transport=fake())
    opened = feed.feed
    with pytest.raises(infeed.CursorError, match="lacks version"):
        feed.load_state({})
    assert feed.feed is opened
    feed.close()


def test_state_that_is_no_cursor_is_refused_at_once() -> None:
    with pytest.raises(infeed.CursorError, match="lacks"):
        FeedAdapter("fake", "fake", transport=fake(), state={"position": 4})


def test_closed_feed_is_not_opened() -> None:
    feed = FeedAdapter("fake", "fake", transport=fake())
    feed.close()
    with pytest.raises(infeed.FeedClosedError, match="the feed of 'fake' was closed"):
        _ = feed.feed


def test_close_does_not_wait_for_a_thread_that_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting, closed = threading.Event(), threading.Event()

    def connect(*args: Any, **options: Any) -> infeed.Feed:
        connecting.set()
        assert closed.wait(HANG_SECONDS)
        return infeed.connect(*args, **options)

    monkeypatch.setattr(feed_adapter, "connect", connect)
    feed = FeedAdapter("fake", "fake", transport=fake())
    opened: list[infeed.Feed] = []
    thread = threading.Thread(target=lambda: opened.append(feed.feed))
    thread.start()
    connecting.wait()
    feed.close()
    closed.set()
    thread.join()
    with pytest.raises(infeed.FeedClosedError):
        next(opened[0])


@pytest.mark.parametrize("seed", [None, 5])
def test_first_state_is_that_of_the_feed_and_opens_no_stream(seed: int | None) -> None:
    transport = fake()
    feed = FeedAdapter("fake", "fake", transport=transport, seed=seed)
    state = feed.state()
    assert transport.streams == 0
    assert feed.feed.state() == state
    feed.close()


def test_the_segments_of_a_cursor_are_kept() -> None:
    cursor = amended_run()[2]
    state = json.loads(json.dumps(cursor.to_json()))
    feed = FeedAdapter("fake", "new", state=cursor, transport=fake())
    assert feed.state() == state
    feed.load_state(state)
    assert feed.state() == state


def test_steps_that_are_read_again_have_no_state() -> None:
    transport = fake()
    feed = FeedAdapter("fake", "fake", steps=(2, 4), seed=3, transport=transport)
    for _ in range(2):
        with pytest.raises(infeed.InvalidRequestError, match=r"steps \(2, 4\).*has no state"):
            feed.state()
        assert len(feed) == 2
    assert next(feed.feed).sample_ids.tolist() == transport.sample_ids(3, 8, 4).tolist()
    feed.close()
