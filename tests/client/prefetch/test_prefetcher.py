"""Feeds over real gRPC: losses, restarts, and misbehaving peers."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from tests.client.waiting import HANG_SECONDS, blocked_in, infeed_threads, until

import infeed
from infeed.prefetch import prefetcher as prefetcher_module
from infeed.prefetch.coordinator import Coordinator
from infeed.shared.errors import ServerUnavailableError
from infeed.shared.spec import Normalize
from infeed.testing import FakeTransport


def check_order(batches: list[infeed.Batch], fake: FakeTransport, seed: int = 3) -> None:
    """Checks that every batch is there once, in order, with the right samples."""
    assert [batch.start for batch in batches] == [4 * k for k in range(len(batches))]
    for batch in batches:
        assert batch.sample_ids.tolist() == fake.sample_ids(seed, batch.start, 4).tolist()
        np.testing.assert_array_equal(batch["label"], batch.sample_ids)


def test_consumed_batch_has_no_references_left(serve: Any, arrays: Any) -> None:
    release = threading.Event()
    server = serve(
        FakeTransport(arrays, before_batch=lambda start: start < 32 or release.wait(HANG_SECONDS))
    )
    gc.disable()  # it would collect reference cycles
    try:
        with infeed.connect(server.address, "fake") as feed:
            references = [weakref.ref(feed.next(HANG_SECONDS)) for _ in range(4)]
            until(lambda: all(reference() is None for reference in references))
            release.set()
    finally:
        gc.enable()


class ResolvingFake(FakeTransport):
    """A fake with a function that resolves its servers."""

    def __init__(self, arrays: Any, resolve: Any, **options: Any) -> None:
        super().__init__(arrays, batch_size=4, seed=3, **options)
        self.servers = resolve  # type: ignore[method-assign]


@pytest.fixture
def resolves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolves names without an interval."""
    monkeypatch.setattr(prefetcher_module, "RESOLVE_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(prefetcher_module, "_CHECK_INTERVAL_SECONDS", 0.001)


def test_added_server_is_used(resolves_at_once: None, arrays: Any) -> None:
    names = ["first"]
    transport = ResolvingFake(arrays, lambda: tuple(names))
    with infeed.connect("-", "fake", transport=transport) as feed:
        next(feed)
        names.append("second")
        until(lambda: feed.stats().servers == ("first", "second"))


def test_unexpected_error_of_a_later_resolution_ends_the_feed(
    resolves_at_once: None, arrays: Any
) -> None:
    names: list[Any] = [("first",), ServerUnavailableError("no name server"), ZeroDivisionError()]

    def resolve() -> Any:
        answer = names.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    transport = ResolvingFake(arrays, resolve)
    with infeed.connect("-", "fake", transport=transport) as feed, pytest.raises(ZeroDivisionError):
        list(feed)


def test_verdict_knows_the_servers_that_have_just_returned(
    fake: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Coordinator, "missing_servers", {"a:1": "is lost"})
    monkeypatch.setattr(prefetcher_module, "judge", lambda *arguments: arguments)
    with infeed.connect("-", "fake", transport=fake) as feed:
        assert feed.stats().assessment[-1] == {"a:1": "is lost"}  # type: ignore[index]


def test_overdue_streams_are_cancelled(
    fake: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_checked = threading.Event()
    reader = prefetcher_module.ServerReader
    monkeypatch.setattr(reader, "cancel_overdue", lambda _: is_checked.set())
    with infeed.connect("-", "fake", transport=fake):
        assert is_checked.wait(HANG_SECONDS)


HALVED = (Normalize("image", scale=2.0),)


def test_failing_finish_transform_ends_the_feed(
    arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError("no room for the floats")

    monkeypatch.setattr(prefetcher_module, "finish", fail)
    transport = FakeTransport(arrays, finish_transforms=HALVED)
    with (
        infeed.connect("-", "fake", transport=transport) as feed,
        pytest.raises(MemoryError, match="no room"),
    ):
        feed.next(HANG_SECONDS)


def test_finished_batches_are_bounded(arrays: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be much larger than the encoded batches that the window bounds."""
    finished: list[Any] = []
    finish = prefetcher_module.finish

    def counted(*options: Any) -> Any:
        finished.append(1)
        return finish(*options)

    monkeypatch.setattr(prefetcher_module, "finish", counted)
    transport = FakeTransport(arrays, batch_size=4, finish_transforms=HALVED)
    with infeed.connect("-", "fake", transport=transport) as feed:
        (finisher,) = infeed_threads("infeed-finisher")
        until(lambda: blocked_in(finisher, "wait", "put"))
        assert len(finished) == 3  # one of them waits for space
        assert len(feed._prefetcher.ready.items) == 2
    until(lambda: not infeed_threads())
    assert len(finished) == 3  # the rest is dropped
    assert feed._prefetcher._buffers._closed


def test_stop_after_a_fork_leaves_the_parent_connected(fake: FakeTransport) -> None:
    """Parent and child share the sockets: a shutdown in one affects the other."""
    with infeed.connect("-", "fake", epochs=1, transport=fake) as feed:
        feed._prefetcher._pid += 1  # as after a fork
        feed._prefetcher.stop()
        feed._prefetcher._pid -= 1
        check_order(list(feed), fake)
        assert feed.stats().reconnects == 0
