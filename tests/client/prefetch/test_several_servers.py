"""One feed from several servers: the same batches in the same order despite failures."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from tests.client.waiting import HANG_SECONDS, until

import infeed
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
