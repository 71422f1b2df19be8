"""Guarantees of datasets without random access, across kills of servers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infeed

N = 300

FUNCTIONS = f"""
import numpy as np
import tensorflow as tf

def ordered():
    dataset = tf.data.Dataset.range({N}).shuffle(100)
    return dataset.map(lambda n: {{"n": n, "wide": tf.fill([50], n)}}, num_parallel_calls=2)

def of_unknown_length():
    return ordered().filter(lambda sample: sample["n"] % 7 != 3)

def unordered():
    def rows():
        yield from np.random.default_rng().permutation({N})
    signature = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(rows, output_signature=signature)
"""
SOURCES = {
    "ordered": "{dataset: dataset_functions:ordered}",
    "of_unknown_length": "{dataset: dataset_functions:of_unknown_length}",
    "unordered": "{dataset: dataset_functions:unordered, fields: [n], deterministic: false}",
}


def definition(*names: str) -> str:
    """Returns only these pipelines: a server makes the first batch of each when it starts."""
    lines = (
        f"  {name}: {{source: {SOURCES[name]}, batch: {{size: 7, remainder: pad}}}}\n"
        for name in names
    )
    return "pipelines:\n" + "".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sequential")
    (folder / "dataset_functions.py").write_text(FUNCTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


class Ranks:
    """The ranks of one job, read in lockstep, and their samples."""

    def __init__(self, target: str, pipeline: str, world: int, **options: Any) -> None:
        self.feeds = [
            infeed.connect(
                target,
                pipeline,
                shard=infeed.Shard(rank, world),
                prefetch_bytes=1,
                **{"epochs": 2, **options},
            )
            for rank in range(world)
        ]
        self.samples: list[tuple[int, int]] = []
        """(epoch, sample), in the order of positions."""
        self.digest = hashlib.sha256()

    def take(self, steps: int | None = None) -> int:
        """Reads `steps` steps, or all; returns their number."""
        count = 0
        while count != steps:
            batches = [next(feed, None) for feed in self.feeds]
            if batches[0] is None:
                assert not any(batches)  # all end at the same step
                break
            count += 1
            for batch in batches:
                assert batch is not None
                self.samples += [(batch.epoch, int(n)) for n in batch["n"][batch.mask]]
                self.digest.update(np.int64([batch.start, batch.epoch]).tobytes())
                for name in sorted(batch):
                    self.digest.update(batch[name].tobytes())
        return count

    @property
    def values(self) -> list[int]:
        """The samples of all epochs."""
        return [n for _, n in self.samples]

    def close(self) -> None:
        for feed in self.feeds:
            feed.close()


def read_all(target: str, pipeline: str, world: int) -> Ranks:
    """Reads all samples of a job."""
    ranks = Ranks(target, pipeline, world)
    ranks.take()
    ranks.close()
    return ranks


def test_deterministic_dataset_continues_after_kills(command_line: Any, folder: Path) -> None:
    names = ("ordered", "of_unknown_length")
    server = command_line.serve(definition(*names), folder)
    address = server.address
    expected = {name: read_all(address, name, 3) for name in names}
    assert sorted(expected["ordered"].values) == sorted(2 * list(range(N)))
    filtered = [n for n in range(N) if n % 7 != 3]
    assert sorted(expected["of_unknown_length"].values) == sorted(2 * filtered)
    running = {name: Ranks(address, name, 3) for name in names}
    for ranks in running.values():
        guarantee = ranks.feeds[0].guarantee
        assert str(guarantee) == "deterministic order, exactly once delivery, replay resume"
    for ranks in running.values():
        assert ranks.take(9) == 9
    server.kill()
    server = command_line.serve(definition(*names), folder, address)
    for name, ranks in running.items():
        ranks.take()
        ranks.close()
        assert ranks.digest.digest() == expected[name].digest.digest(), name
        assert ranks.samples == expected[name].samples, name
    server.kill()


def test_unordered_dataset_repeats_nothing_after_a_kill(command_line: Any, folder: Path) -> None:
    server = command_line.serve(definition("unordered"), folder)
    address = server.address
    expected = read_all(address, "unordered", 2)
    assert sorted(expected.values) == sorted(2 * list(range(N)))
    assert read_all(address, "unordered", 2).values != expected.values
    ranks = Ranks(address, "unordered", 2, epochs=1)
    guarantee = ranks.feeds[0].guarantee
    assert str(guarantee) == "no order, at most once delivery, no resume"
    ranks.take(9)
    server.kill()
    server = command_line.serve(definition("unordered"), folder, address)
    values = ranks.values
    for rank, feed in enumerate(ranks.feeds):
        # Batches in flight still arrive; their number varies.
        with pytest.raises(infeed.CursorError, match=rf"at position \d+ for rank {rank} of 2"):
            values.extend(n for batch in feed for n in batch["n"][batch.mask].tolist())
    with pytest.raises(infeed.CursorError, match="guarantees no order"):
        infeed.connect(address, "unordered", state=ranks.feeds[0].state())
    ranks.close()
    assert len(values) >= 9 * 2 * 7
    assert max(Counter(values).values()) == 1
    # A new run starts at the first sample.
    assert sorted(read_all(address, "unordered", 2).values) == sorted(2 * list(range(N)))
    server.kill()
