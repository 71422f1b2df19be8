"""Process of one rank: `python -m tests.stress.chaos.trainer TASK`, where TASK is JSON.

It takes batches and saves each as a step. It ends after the last batch, or after the number of
steps in the task's `end_file`, once that file exists.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.stress.chaos.journal import Journal, Step

import infeed


@dataclass(frozen=True)
class Task:
    """Feed options of a rank. `pause` is its idle time after each step in seconds.

    A job sets `rank`, `folder` (of the rank's journal) and `end_file`.
    """

    target: str
    pipeline: str
    world_size: int
    batch_size: int
    rank: int = 0
    folder: str = ""
    end_file: str = ""
    cursor: dict[str, Any] | None = None
    epochs: int | None = None
    pause: float = 0.0
    prefetch_bytes: int = 40_000_000
    timeout: float = 120.0
    reconnect_timeout: float = 120.0

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def train(task: Task) -> None:
    journal = Journal(Path(task.folder))
    end_file = Path(task.end_file)
    with infeed.connect(
        task.target,
        task.pipeline,
        batch_size=task.batch_size,
        shard=infeed.Shard(task.rank, task.world_size),
        state=task.cursor,
        epochs=task.epochs,
        remainder="pad",
        prefetch_bytes=task.prefetch_bytes,
        timeout=task.timeout,
        reconnect_timeout=task.reconnect_timeout,
    ) as feed:
        number = 0
        while not (end_file.exists() and number >= int(end_file.read_text())):
            requested_at = time.monotonic()
            batch = next(feed, None)
            wait_seconds = time.monotonic() - requested_at
            if batch is None:
                break
            journal.save(_step(number, batch, feed.state(), wait_seconds))
            number += 1
            time.sleep(task.pause)
        journal.finish(asdict(feed.stats()))


def _step(number: int, batch: infeed.Batch, cursor: dict[str, Any], wait_seconds: float) -> Step:
    samples = [_sample_digest(batch, slot) for slot in range(batch.slots)]
    ids, mask = batch.sample_ids.tolist(), batch.mask.tolist()
    content = json.dumps([batch.start, batch.epoch, ids, mask, samples])
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Step(number, batch.start, ids, mask, samples, digest, cursor, wait_seconds)


def _sample_digest(batch: infeed.Batch, slot: int) -> str:
    digest = hashlib.sha256()
    for name in sorted(batch):
        array = batch[name][slot]
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    train(Task(**json.loads(sys.argv[1])))
