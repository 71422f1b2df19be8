"""Tests of `infeed.spec`: the sizes of a pipeline without a feed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import infeed
from infeed.testing import FakeTransport

FAKE = FakeTransport(
    {"image": np.zeros((100, 2, 2, 3), np.uint8), "label": np.arange(100)}, batch_size=8
)
PADDED = {"batch_size": 16, "shard": infeed.Shard(1, 2), "epochs": 1, "remainder": "pad"}


@pytest.mark.parametrize("options", [{}, PADDED])
def test_sizes_are_those_of_a_feed(options: dict[str, Any]) -> None:
    options = {**options, "transport": FAKE}
    spec = infeed.spec("fake:1", "fake", **options)
    with infeed.connect("fake:1", "fake", **options) as feed:
        assert (spec.steps, spec.steps_per_epoch) == (feed.steps, feed.steps_per_epoch)
        assert spec.shapes == {name: x.shape for name, x in next(feed).items()}
    assert spec.samples == 100
    assert spec.types == {"image": "uint8", "label": "int64"}


def test_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="spec has no option 'batchsize'"):
        infeed.spec("fake:1", "fake", batchsize=8)  # type: ignore[call-arg]
