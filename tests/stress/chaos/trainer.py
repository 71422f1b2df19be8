"""One rank of a job, as a process: `python -m tests.stress.chaos.trainer TASK` (JSON).

It takes batches, saves each as a step, and ends behind the last one, or behind the step whose
number is in the task's file `end`, once there is one.
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
    """What a rank is to do. `pause` is what it does after each step, in seconds: nothing.

    A job sets `rank`, `folder`, where the rank's journal is, and `end`.
    """

    target: str
    pipeline: str
    world_size: int
    batch_size: int
    rank: int = 0
    folder: str = ""
    end: str = ""
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
    end = Path(task.end)
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
        while not (end.exists() and number >= int(end.read_text())):
            asked_at = time.monotonic()
            batch = next(feed, None)
            at = time.monotonic()
            if batch is None:
                break
            journal.save(_step(number, batch, feed.state(), at - asked_at, at))
            number += 1
            time.sleep(task.pause)
        journal.finish(asdict(feed.stats()))


def _step(
    number: int, batch: infeed.Batch, cursor: dict[str, Any], waited: float, at: float
) -> Step:
    samples = [_sample_digest(batch, slot) for slot in range(batch.slots)]
    ids, mask = batch.sample_ids.tolist(), batch.mask.tolist()
    whole = json.dumps([batch.start, batch.epoch, ids, mask, samples])
    digest = hashlib.sha256(whole.encode()).hexdigest()
    return Step(number, batch.start, ids, mask, samples, digest, cursor, waited, at)


def _sample_digest(batch: infeed.Batch, slot: int) -> str:
    digest = hashlib.sha256()
    for name in sorted(batch):
        array = batch[name][slot]
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    train(Task(**json.loads(sys.argv[1])))
