"""Runs that are saved and resumed several times, with other world sizes and batch sizes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.examples import examples

import infeed
from infeed.shared.spec import Remainder
from infeed.testing import FakeTransport

worlds = st.integers(1, 4)
sizes = st.integers(1, 7)
legs = st.lists(st.tuples(worlds, sizes, st.integers(0, 6)), max_size=4)
"""World size, batch size, and the steps before the run is saved."""


class Run:
    """Runs all ranks one after another, and records their samples."""

    def __init__(self, fake: FakeTransport, count: int, epochs: int, remainder: Remainder) -> None:
        self._fake = fake
        self._count = count
        self._options: dict[str, Any] = {"epochs": epochs, "remainder": remainder}
        self.state: dict[str, Any] | None = None
        self.seen: list[tuple[int, int]] = []
        """(epoch, sample) of each delivered sample."""

    def resume(self, world: int, size: int, steps: int | None) -> int:
        """Takes the steps on every rank, all of them if None; returns their number."""
        before, states, taken = self.state, [], set()
        for rank in range(world):
            shard = infeed.Shard(rank, world)
            with infeed.connect(
                "fake",
                "fake",
                transport=self._fake,
                shard=shard,
                batch_size=size,
                state=before,
                **self._options,
            ) as feed:
                taken.add(self._take(feed, steps))
                states.append(feed.state())
        assert len(taken) == 1  # the same number of steps on every rank
        assert all(state == states[0] for state in states)  # any rank's cursor can be saved
        self.state = states[0]
        return taken.pop()

    def _take(self, feed: infeed.Feed, steps: int | None) -> int:
        taken = 0
        while taken != steps and (batch := next(feed, None)) is not None:
            taken += 1
            for slot in np.flatnonzero(batch.mask):
                assert batch["x"][slot] == batch.sample_ids[slot]
                epoch = (batch.start + int(slot)) // self._count
                self.seen.append((epoch, int(batch["x"][slot])))
            assert not batch["x"][~batch.mask].any()
        return taken


@examples(60)
@given(
    count=st.integers(7, 30),
    epochs=st.integers(1, 3),
    remainder=st.sampled_from(["drop", "pad"]),
    shuffle=st.booleans(),
    length_known=st.booleans(),
    legs=legs,
    last=st.tuples(worlds, sizes),
)
def test_every_sample_is_delivered_once_per_epoch(
    count: int,
    epochs: int,
    remainder: Remainder,
    shuffle: bool,
    length_known: bool,
    legs: list[tuple[int, int, int]],
    last: tuple[int, int],
) -> None:
    fake = FakeTransport(
        {"x": np.arange(count)}, seed=5, shuffle=shuffle, length_known=length_known
    )
    total = count * epochs
    run = Run(fake, count, epochs, remainder)
    position = 0
    for world, size, steps in legs:
        if remainder == "drop" and length_known and not position and world * size > total:
            with pytest.raises(infeed.InvalidRequestError, match="no complete step"):
                run.resume(world, size, steps)
            continue
        run.resume(world, size, steps)
        assert run.state is not None
        position = run.state["position"]
    world, size = last
    if remainder == "drop" and length_known and not position and world * size > total:
        return
    run.resume(world, size, None)
    seen = Counter(run.seen)
    assert max(seen.values(), default=1) == 1
    every = {(epoch, sample) for epoch in range(epochs) for sample in range(count)}
    assert set(seen) <= every
    assert run.state is not None
    assert len(seen) == run.state["position"]
    left = total - len(seen)
    assert left == 0 if remainder == "pad" else 0 <= left < world * size
    # All epochs but the last are complete.
    for epoch in range((total - left) // count):
        assert {sample for in_epoch, sample in seen if in_epoch == epoch} == set(range(count))
