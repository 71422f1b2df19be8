"""The iterator under exceptions of signal handlers: they lose no batch, and count none."""

from __future__ import annotations

import contextlib
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from tests.client.interrupts import check_that_nothing_is_lost, interrupt
from tests.client.waiting import until

import infeed
from infeed.testing import FakeTransport

pytest.importorskip("jax")

from infeed.jax import device_feed

MODULE = device_feed.__file__


def fake(count: int) -> FakeTransport:
    return FakeTransport({"x": np.arange(count)}, batch_size=1, shuffle=False)


def first_of(batch: dict[str, Any]) -> int:
    return int(batch["x"][0])


@pytest.mark.parametrize("device_prefetch", [0, 2])
def test_interrupt_at_any_bytecode_loses_and_counts_nothing(device_prefetch: int) -> None:
    options = {"transport": fake(4096), "device_prefetch": device_prefetch}
    with infeed.jax.connect("fake", "fake", **options) as batches:
        assert first_of(next(batches)) == 0
        position = lambda: batches.state()["position"]  # noqa: E731
        assert check_that_nothing_is_lost(batches, first_of, position) > 100


def test_interrupt_of_load_state_leaves_no_batch_of_the_feed_before() -> None:
    for at in count():
        with infeed.jax.connect("fake", "fake", epochs=1, transport=fake(12)) as batches:
            until(lambda batches=batches: batches.stats().prefetched_bytes == 12 * 8)  # type: ignore[misc]
            state = batches.state()
            next(batches)
            interrupted = interrupt(partial(batches.load_state, state), at, folder=MODULE)
            state = batches.state()
            with contextlib.suppress(infeed.FeedClosedError):
                assert first_of(next(batches)) == state["position"]
        if not interrupted:
            break
    assert at > 5
