"""Tests of the direct iterator over tensors."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")


import infeed  # noqa: E402
from infeed.testing import FakeTransport  # noqa: E402
from infeed.torch import connect  # noqa: E402


@pytest.mark.parametrize("finish", ["trainer", "server"])
def test_memory_of_a_tensor_is_not_used_again(finish: Any) -> None:
    # Blocks above 128 KiB are pooled, and pooled ones are lent again at once.
    count, width = 32, 1 << 17
    arrays = {
        "u8": np.arange(count, dtype=np.uint8)[:, None].repeat(width, 1),
        "f32": np.arange(count, dtype=np.uint8)[:, None].repeat(width, 1),
    }
    transforms = [infeed.shared.spec.Normalize("f32", scale=2.0)]
    transport = FakeTransport(arrays, batch_size=2, shuffle=False, finish_transforms=transforms)
    with connect(
        "fake", "fake", transport=transport, finish=finish, ids="id", prefetch_bytes=1
    ) as feed:
        kept = []
        for _ in range(4):
            batch = next(feed)
            # Views, and views of views, of a batch that is dropped.
            part = batch["u8"][1:, ::2]
            kept.append((batch["id"].tolist(), part.T[:5], batch["f32"].view(-1)[-7:].numpy()))
            del batch, part
        gc.collect()
        addresses = set()
        for _ in range(24):
            batch = next(feed)
            addresses.add(batch["u8"].data_ptr())
            for field in (batch["u8"], batch["f32"]):
                field.fill_(99)
            del batch, field
            gc.collect()
        assert len(addresses) < 24, "no memory was used again, so the test shows nothing"
        for sample_ids, u8, f32 in kept:
            assert u8.unique().tolist() == [sample_ids[1]]
            assert np.unique(f32).tolist() == [sample_ids[1] / 2]
