"""Several servers, one feed: the same batches in the same order, whatever becomes of each."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, until

import infeed
from infeed import ledger as ledger_module
from infeed import pool as pool_module
from infeed.errors import FingerprintError, SampleError, ServerUnavailableError
from infeed.testing import FakeTransport

STEPS = 37


def fake(arrays: Any, before_batch: Any = None) -> FakeTransport:
    return FakeTransport(arrays, batch_size=4, seed=3, before_batch=before_batch)


def whole(feed: infeed.Feed, arrays: Any) -> None:
    """Takes all of three epochs; every batch is there once, in order, with the right samples."""
    told = fake(arrays)
    batches = list(feed)
    assert [batch.start for batch in batches] == [4 * k for k in range(STEPS)]
    for batch in batches:
        assert batch.sample_ids.tolist() == told.sample_ids(3, batch.start, 4).tolist()
        np.testing.assert_array_equal(batch["label"], batch.sample_ids)


def target(*servers: Any) -> str:
    return ",".join(server.address for server in servers)


def test_each_is_asked(serve: Any, arrays: Any) -> None:
    starts: list[set[int]] = [set(), set(), set()]
    all_asked = threading.Event()

    def server(seen: set[int]) -> Any:
        def note(start: int) -> None:
            seen.add(start)
            all_asked.wait(HANG_SECONDS)

        return serve(fake(arrays, note))

    servers = [server(seen) for seen in starts]
    with infeed.connect(target(*servers), "fake", epochs=3) as feed:
        until(lambda: all(starts))
        all_asked.set()
        whole(feed, arrays)
        assert set(feed.stats().servers) == {one.address for one in servers}
        assert feed.stats().reconnects == 0
    assert set.union(*starts) == {4 * k for k in range(STEPS)}


def test_one_window_over_all_of_them(
    serve: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_LOOK_SECONDS", 0.01)
    looks: Counter[str] = Counter()
    ask = ledger_module.Ledger.ask

    def counted(self: Any, server: str, limit: int) -> int | None:
        looks[server] += 1
        return ask(self, server, limit)

    with infeed.connect(target(serve(fake(arrays))), "fake", prefetch_bytes=1) as feed:
        two = feed.stats().prefetch_limit_bytes
    asked: list[int] = []
    servers = [serve(fake(arrays, asked.append)) for _ in range(3)]
    with infeed.connect(target(*servers), "fake", epochs=3, prefetch_bytes=3 * two) as feed:
        until(lambda: feed.stats().prefetched_bytes >= 3 * two)
        until(lambda: len(feed.stats().servers) == 3)
        # From now on each server is considered twice, and nothing more is asked of any.
        monkeypatch.setattr(ledger_module.Ledger, "ask", counted)
        until(lambda: all(looks[server.address] >= 2 for server in servers))
        assert not any(feed._stream._pool._ledger.owed(server.address) for server in servers)
        stats = feed.stats()
        assert stats.prefetched_bytes == stats.prefetch_limit_bytes == 3 * two
        assert sorted(asked) == [4 * k for k in range(6)]
        whole(feed, arrays)
        assert feed.stats().prefetched_bytes == 0


def test_close_lets_go_of_what_came_out_of_order(serve: Any, arrays: Any) -> None:
    stuck = threading.Event()
    held = fake(arrays, lambda at: at != 0 or stuck.wait(HANG_SECONDS))
    servers = [serve(held), serve(held)]
    with infeed.connect(target(*servers), "fake", prefetch_bytes=1 << 20) as feed:
        until(lambda: feed.stats().prefetched_bytes)
    stuck.set()
    assert feed.stats().prefetched_bytes == 0
    assert not feed._stream._pool._ledger._here


def one_stuck_and_one_good(
    serve: Any, arrays: Any, asked: threading.Event, stuck: threading.Event
) -> tuple[Any, Any]:
    """Starts a server that answers nothing before `stuck`, and one that answers from the moment
    that the first was asked for a batch."""

    def hold(start: int) -> None:
        asked.set()
        stuck.wait(2 * HANG_SECONDS)

    return serve(fake(arrays, hold)), serve(fake(arrays, lambda start: asked.wait(HANG_SECONDS)))


def test_what_a_dead_one_owed_is_asked_of_another(serve: Any, arrays: Any) -> None:
    asked, stuck = threading.Event(), threading.Event()
    first, second = one_stuck_and_one_good(serve, arrays, asked, stuck)
    with infeed.connect(target(second, first), "fake", epochs=3, prefetch_bytes=1000) as feed:
        assert asked.wait(HANG_SECONDS)
        first.stop()
        stuck.set()
        whole(feed, arrays)


def test_one_that_is_not_there_holds_up_nobody(serve: Any, arrays: Any) -> None:
    away = serve(fake(arrays))
    away.stop()
    server = serve(fake(arrays))
    with infeed.connect(target(server, away), "fake", epochs=3) as feed:
        whole(feed, arrays)
        assert feed.stats().servers == (server.address,)


def test_one_that_comes_back_is_used_again(serve: Any, arrays: Any) -> None:
    first, second = serve(fake(arrays)), serve(fake(arrays))
    second.stop()
    with infeed.connect(target(first, second), "fake", prefetch_bytes=1) as feed:
        next(feed)
        second.start()
        until(lambda: next(feed) and len(feed.stats().servers) == 2)
        assert set(feed.stats().servers) == {first.address, second.address}


def test_a_straggler_is_asked_of_another_and_counted(
    serve: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "LEAST_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(pool_module, "_LOOK_SECONDS", 0.01)
    asked, stuck = threading.Event(), threading.Event()
    first, second = one_stuck_and_one_good(serve, arrays, asked, stuck)
    try:
        with infeed.connect(target(second, first), "fake", prefetch_bytes=1000) as feed:
            taken = [feed.next(HANG_SECONDS).start for _ in range(20)]
            assert taken == [4 * k for k in range(20)]
            assert feed.stats().hedges >= 1
            assert "asked twice" in str(feed.stats())
    finally:
        stuck.set()


def test_another_version_is_left_out(
    serve: Any, arrays: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(fake(arrays))
    other = serve(fake({**arrays, "label": arrays["label"] + 1}))
    with infeed.connect(target(server, other), "fake", epochs=3, prefetch_bytes=1) as feed:
        whole(feed, arrays)
        assert feed.stats().servers == (server.address,)
    assert f"{other.address} is left out" in caplog.text
    assert "fingerprint" in caplog.text


def test_none_that_suits(serve: Any, arrays: Any) -> None:
    servers = [serve(fake(arrays)), serve(fake(arrays))]
    with infeed.connect(target(*servers), "fake", prefetch_bytes=1) as feed:
        next(feed)
        for server in servers:
            server.stop()
            server.pipelines["fake"] = fake({**arrays, "label": arrays["label"] + 1})
            server.start()
        with pytest.raises(FingerprintError):
            list(feed)


def test_a_bad_sample_comes_in_its_turn(serve: Any, arrays: Any) -> None:
    def fail(start: int) -> None:
        if start == 40:
            raise SampleError("a.jpg is no image")

    servers = [serve(fake(arrays, fail)), serve(fake(arrays, fail))]
    with infeed.connect(target(*servers), "fake", epochs=3) as feed:
        assert [next(feed).start for _ in range(10)] == [4 * k for k in range(10)]
        for _ in range(2):
            with pytest.raises(SampleError, match="no image"):
                next(feed)


def test_a_drained_one_sends_what_it_owes_and_is_asked_no_more(arrays: Any) -> None:
    """Told to the transport as gRPC's GOAWAY is."""
    tell: list[Any] = []
    asked: list[int] = []

    class Draining(FakeTransport):
        def open_stream(self, server: str, requests: Any, draining: Any) -> Any:
            tell.append(draining)
            return super().open_stream(server, requests, draining)

    def note(start: int) -> None:
        asked.append(start)
        if len(asked) == 5:
            tell[0]()

    transport = Draining(arrays, batch_size=4, seed=3, before_batch=note)
    with infeed.connect("fake", "fake", epochs=3, transport=transport) as feed:
        whole(feed, arrays)
        assert feed.stats().reconnects == 1
    assert transport.streams == 2
    assert asked == [4 * k for k in range(STEPS)]


def test_a_lost_one_is_asked_when_it_has_accepted_the_stream(arrays: Any) -> None:
    """The host of a stopped process takes connections all the same."""
    reached = threading.Event()
    asked: list[Any] = []
    stopped = fake(arrays)

    def hold(requests: Any) -> Any:
        assert next(requests).HasField("open")
        reached.set()
        asked.append(next(requests, None))
        yield b""

    stopped.answer = hold

    class Two(FakeTransport):
        attempts = 0

        def servers(self) -> tuple[str, ...]:
            return ("good", "stopped")

        def open_stream(self, server: str, requests: Any, draining: Any) -> Any:
            if server == "good":
                return super().open_stream(server, requests, draining)
            self.attempts += 1
            if self.attempts == 1:
                raise ServerUnavailableError("the connection was cut")
            return stopped.open_stream(server, requests, draining)

    transport = Two(arrays, batch_size=4, seed=3, before_batch=lambda start: reached.wait(60))
    with infeed.connect("two", "fake", epochs=3, prefetch_bytes=1, transport=transport) as feed:
        whole(feed, arrays)
        assert feed.stats().hedges == 0
    assert reached.is_set()
    assert asked in ([], [None])
