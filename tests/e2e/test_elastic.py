"""Resume with other world sizes and batch sizes, across a kill and restart of the server."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import infeed
from infeed.shared.spec import Remainder

N = 103
EPOCHS = 3
LEGS = [(2, 8, 3), (3, 5, 2), (1, 17, 4), (4, 3, 1), (2, 1, 5), (5, 4, None)]
"""World size, batch size and number of steps; None: until the end."""

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
    """A run of one pipeline over all legs, and its delivered samples."""

    def __init__(self, pipeline: str, remainder: Remainder) -> None:
        self.name = f"{pipeline}, {remainder}"
        self.remainder: Remainder = remainder
        self.deliveries: Counter[tuple[int, int]] = Counter()
        """(epoch, sample) → number of deliveries."""
        self._pipeline = pipeline
        self._state: dict[str, Any] | None = None

    def run_leg(self, address: str, world: int, size: int, steps: int | None) -> None:
        """Connects every rank with the cursor of the previous leg, and reads `steps` steps."""
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
                    slots = zip((positions // N).tolist(), numbers.tolist(), strict=True)
                    self.deliveries.update(slots)
                states.append(feed.state())
        assert all(state == states[0] for state in states), self.name
        self._state = states[0]


def test_every_sample_is_delivered_once_across_resumes(command_line: Any, tmp_path: Path) -> None:
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
            run.run_leg(address, *leg)
    server.kill()
    for run in runs:
        missing = EPOCHS * N - run.deliveries.total()
        assert set(run.deliveries.values()) == {1}, run.name
        assert missing == 0 if run.remainder == "pad" else 0 <= missing < 5 * 4, run.name
        assert {n for epoch, n in run.deliveries if epoch == 0} == set(range(N)), run.name
