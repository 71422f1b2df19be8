"""Resume with other world sizes and batch sizes, over the kill and restart of a real server."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import infeed
from infeed.spec import Remainder

N = 103
EPOCHS = 3
LEGS = [(2, 8, 3), (3, 5, 2), (1, 17, 4), (4, 3, 1), (2, 1, 5), (5, 4, None)]
"""World size, batch size, and the steps until it ends; None: to the end."""

FUNCTIONS = f"""
import tensorflow as tf

def ordered():
    return tf.data.Dataset.range({N}).shuffle(40).map(lambda n: {{"n": n}})
"""
PIPELINES = {
    "global": ("{arrays: n.npz}", ", shuffle: {seed: 3}"),
    "window": ("{arrays: n.npz}", ", shuffle: {mode: window, block: 4, window: 16}"),
    "none": ("{arrays: n.npz}", ""),
    "dataset": ("{dataset: elastic_functions:ordered}", ""),
}
"""Name → source and shuffle."""

DEFINITION = "pipelines:\n" + "".join(
    f"  {name}: {{source: {source}, batch: {{size: 8}}{more}}}\n"
    for name, (source, more) in PIPELINES.items()
)


class Run:
    """One pipeline over all legs of a run; what was delivered."""

    def __init__(self, pipeline: str, remainder: Remainder) -> None:
        self.name = f"{pipeline}, {remainder}"
        self.remainder: Remainder = remainder
        self.seen: Counter[tuple[int, int]] = Counter()
        """(epoch, sample), as often as it came."""
        self._pipeline = pipeline
        self._state: dict[str, Any] | None = None

    def go_on(self, address: str, world: int, size: int, steps: int | None) -> None:
        """Connects every rank with the cursor of the leg before, and takes so many steps."""
        states = []
        for rank in range(world):
            with infeed.connect(
                address,
                self._pipeline,
                shard=infeed.Shard(rank, world),
                batch_size=size,
                epochs=EPOCHS,
                remainder=self.remainder,
                state=self._state,
            ) as feed:
                for batch in islice(feed, steps):
                    positions = batch.start + np.flatnonzero(batch.mask)
                    numbers = batch["n"][batch.mask]
                    self.seen.update(zip((positions // N).tolist(), numbers.tolist(), strict=True))
                states.append(feed.state())
        assert all(state == states[0] for state in states), self.name
        self._state = states[0]


def test_every_sample_comes_once_over_all_world_sizes_and_restarts(
    command_line: Any, tmp_path: Path
) -> None:
    (tmp_path / "elastic_functions.py").write_text(FUNCTIONS)
    np.savez(tmp_path / "n.npz", n=np.arange(N))
    server = command_line.serve(DEFINITION, tmp_path)
    address = server.address
    runs = [Run(pipeline, remainder) for pipeline in PIPELINES for remainder in ("drop", "pad")]
    for number, leg in enumerate(LEGS):
        if number == len(LEGS) // 2:
            server.kill()
            server = command_line.serve(DEFINITION, tmp_path, address)
            assert server.address == address
        for run in runs:
            run.go_on(address, *leg)
    server.kill()
    for run in runs:
        left = EPOCHS * N - run.seen.total()
        assert set(run.seen.values()) == {1}, run.name
        assert left == 0 if run.remainder == "pad" else 0 <= left < 5 * 4, run.name
        assert {n for epoch, n in run.seen if epoch == 0} == set(range(N)), run.name
