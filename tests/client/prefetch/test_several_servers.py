"""One feed from several servers: the same batches in the same order despite failures."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, until

import infeed
from infeed.prefetch import coordinator as coordinator_module
from infeed.prefetch import server_pool as pool_module
from infeed.prefetch import step_scheduler as scheduler_module
from infeed.shared.errors import (
    ServerUnavailableError,
)
from infeed.testing import FakeTransport

STEPS = 37


def fake(arrays: Any, before_batch: Any = None) -> FakeTransport:
    return FakeTransport(arrays, batch_size=4, seed=3, before_batch=before_batch)


def check_all_epochs(feed: infeed.Feed, arrays: Any) -> None:
    """Consumes three epochs: every batch once, in order, with the right samples."""
    expected = fake(arrays)
    batches = list(feed)
    assert [batch.start for batch in batches] == [4 * k for k in range(STEPS)]
    for batch in batches:
        assert batch.sample_ids.tolist() == expected.sample_ids(3, batch.start, 4).tolist()
        np.testing.assert_array_equal(batch["label"], batch.sample_ids)


def target(*servers: Any) -> str:
    return ",".join(server.address for server in servers)


def test_steps_are_requested_from_all_servers(serve: Any, arrays: Any) -> None:
    starts: list[set[int]] = [set(), set(), set()]
    all_requested = threading.Event()

    def server(requested: set[int]) -> Any:
        def record(start: int) -> None:
            requested.add(start)
            all_requested.wait(HANG_SECONDS)

        return serve(fake(arrays, record))

    servers = [server(requested) for requested in starts]
    with infeed.connect(target(*servers), "fake", epochs=3) as feed:
        until(lambda: all(starts))
        all_requested.set()
        check_all_epochs(feed, arrays)
        assert set(feed.stats().servers) == {one.address for one in servers}
        assert feed.stats().reconnects == 0
    assert set.union(*starts) == {4 * k for k in range(STEPS)}


def test_prefetch_window_spans_all_servers(
    serve: Any, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_HEDGE_CHECK_INTERVAL_SECONDS", 0.01)
    calls: Counter[str] = Counter()
    assign = scheduler_module.StepScheduler.assign

    def counted(self: Any, server: str, step_limit: int) -> int | None:
        calls[server] += 1
        return assign(self, server, step_limit)

    with infeed.connect(target(serve(fake(arrays))), "fake", prefetch_bytes=1) as feed:
        two = feed.stats().prefetch_limit_bytes
    requested: list[int] = []
    servers = [serve(fake(arrays, requested.append)) for _ in range(3)]
    with infeed.connect(target(*servers), "fake", epochs=3, prefetch_bytes=3 * two) as feed:
        until(lambda: feed.stats().prefetched_bytes >= 3 * two)
        until(lambda: len(feed.stats().servers) == 3)
        # Two more attempts to assign a step to each server assign nothing.
        monkeypatch.setattr(scheduler_module.StepScheduler, "assign", counted)
        until(lambda: all(calls[server.address] >= 2 for server in servers))
        assert not any(
            feed._prefetcher._coordinator._scheduler.in_flight_count(server.address)
            for server in servers
        )
        stats = feed.stats()
        assert stats.prefetched_bytes == stats.prefetch_limit_bytes == 3 * two
        assert sorted(requested) == [4 * k for k in range(6)]
        check_all_epochs(feed, arrays)
        assert feed.stats().prefetched_bytes == 0


def test_server_that_starts_later_is_used(serve: Any, arrays: Any) -> None:
    first, second = serve(fake(arrays)), serve(fake(arrays))
    second.stop()
    with infeed.connect(target(first, second), "fake", prefetch_bytes=1) as feed:
        next(feed)
        second.start()
        until(lambda: next(feed) and len(feed.stats().servers) == 2)
        assert set(feed.stats().servers) == {first.address, second.address}


def test_draining_server_sends_only_the_steps_in_flight(arrays: Any) -> None:
    """The transport reports a GOAWAY in the same way."""
    callbacks: list[Any] = []
    requested: list[int] = []

    class Draining(FakeTransport):
        def open_stream(self, server: str, requests: Any, on_draining: Any) -> Any:
            callbacks.append(on_draining)
            return super().open_stream(server, requests, on_draining)

    def record(start: int) -> None:
        requested.append(start)
        if len(requested) == 5:
            callbacks[0]()

    transport = Draining(arrays, batch_size=4, seed=3, before_batch=record)
    with infeed.connect("fake", "fake", epochs=3, transport=transport) as feed:
        check_all_epochs(feed, arrays)
        assert feed.stats().reconnects == 1
    assert transport.streams == 2
    assert requested == [4 * k for k in range(STEPS)]


def test_stream_whose_end_does_not_come_is_opened_again(arrays: Any, monkeypatch: Any) -> None:
    """A proxy can keep a stream open whose server is gone."""
    monkeypatch.setattr(coordinator_module, "MAX_DRAIN_SILENCE_SECONDS", 0.0)
    cancelled = threading.Event()

    class Stuck:
        """A call that announces its end after three batches, and then waits for its cancelling."""

        def __init__(self, call: Any, on_draining: Any) -> None:
            self.server, self.read_into, self.close = call.server, call.read_into, call.close
            self._call, self._on_draining, self._messages = call, on_draining, 0

        def next(self) -> int | None:
            self._messages += 1
            if self._messages <= 7:
                size: int | None = self._call.next()
                return size
            self._on_draining()
            assert cancelled.wait(60)
            raise ServerUnavailableError("cancelled")

        def cancel(self) -> None:
            cancelled.set()
            self._call.cancel()

    class BehindProxy(FakeTransport):
        def open_stream(self, server: str, requests: Any, on_draining: Any) -> Any:
            call = super().open_stream(server, requests, on_draining)
            return Stuck(call, on_draining) if self.streams == 1 else call

    transport = BehindProxy(arrays, batch_size=4, seed=3)
    with infeed.connect("fake", "fake", epochs=3, transport=transport) as feed:
        check_all_epochs(feed, arrays)
        assert feed.stats().reconnects == 1
    assert cancelled.is_set()
    assert transport.streams == 2
