"""A run that goes on with other ranks and other batches, on a real server that is killed."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed

N = 103
EPOCHS = 3
LEGS = [(2, 8, 3), (3, 5, 2), (1, 17, 4), (4, 3, 1), (2, 1, 5), (5, 4, None)]
"""World size, batch size, and the steps until it ends; None: to the end."""

FUNCTIONS = f"""
import tensorflow as tf

def ordered():
    return tf.data.Dataset.range({N}).shuffle(40).map(lambda n: {{"n": n}})
"""
DEFINITION = "pipelines:\n" + "".join(
    f"  {name}: {{source: {source}, batch: {{size: 8}}{more}}}\n"
    for name, source, more in (
        ("global", "{arrays: n.npz}", ", shuffle: {seed: 3}"),
        ("window", "{arrays: n.npz}", ", shuffle: {mode: window, block: 4, window: 16}"),
        ("none", "{arrays: n.npz}", ""),
        ("dataset", "{dataset: elastic_functions:ordered}", ""),
    )
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "elastic_functions.py").write_text(FUNCTIONS)
    np.savez(tmp_path / "n.npz", n=np.arange(N))
    return tmp_path


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_the_union_is_exact(command_line: Any, folder: Path, remainder: Any) -> None:
    server = command_line.serve(DEFINITION, folder)
    address = server.address
    for pipeline in ("global", "window", "none", "dataset"):
        seen: Counter[tuple[int, int]] = Counter()
        state = None
        for world, size, steps in LEGS:
            states = []
            for rank in range(world):
                with infeed.connect(
                    address,
                    pipeline,
                    shard=infeed.Shard(rank, world),
                    batch_size=size,
                    epochs=EPOCHS,
                    remainder=remainder,
                    state=state,
                ) as feed:
                    for batch in islice(feed, steps):
                        positions = batch.start + np.flatnonzero(batch.mask)
                        numbers = batch["n"][batch.mask]
                        seen.update(zip((positions // N).tolist(), numbers.tolist(), strict=True))
                    states.append(feed.state())
            state = states[0]
            assert all(other == state for other in states)
        left = EPOCHS * N - sum(seen.values())
        assert set(seen.values()) == {1}, pipeline
        assert left == 0 if remainder == "pad" else 0 <= left < 5 * 4, pipeline
        assert {n for epoch, n in seen if epoch == 0} == set(range(N)), pipeline
        server.kill()
        server = command_line.serve(DEFINITION, folder, address)
