"""A fake pipeline whose samples are their own ids."""

from __future__ import annotations

from typing import Any

import numpy as np

import infeed
from infeed.testing import FakeTransport

COUNT = 26
"""Samples: six batches of four, and a remainder of two."""

STEPS = 6


def fake(**options: Any) -> FakeTransport:
    x = np.arange(COUNT, dtype=np.float32)
    return FakeTransport({"x": x}, **{"seed": 3, "batch_size": 4, **options})


def stream(count: int, **options: Any) -> list[list[float]]:
    """Returns the ids of the first batches of the endless stream."""
    with infeed.connect("fake", "fake", transport=fake(), **options) as feed:
        return [next(feed)["x"].tolist() for _ in range(count)]


def passes(count: int, **options: Any) -> list[list[list[float]]]:
    """Returns the ids of each batch of passes over one epoch each, from a feed for each."""
    result = []
    with infeed.connect("fake", "fake", transport=fake()) as feed:
        cursor = feed.state()
    for epoch in range(count):
        state = {**cursor, "position": epoch * COUNT}
        with infeed.connect(
            "fake", "fake", transport=fake(), state=state, epochs=epoch + 1, **options
        ) as feed:
            result.append([batch["x"].tolist() for batch in feed])
    return result


def ids(batches: Any) -> list[list[float]]:
    return [batch["x"].tolist() for batch in batches]


EVALUATION = [*passes(1)[0], passes(1, remainder="pad")[0][-1][: COUNT % 4]]
"""The batches of an evaluation: every sample once, and no empty slot."""
