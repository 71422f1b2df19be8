"""Process of one rank, `python -m tests.stress.chaos.trainer TASK`, and the steps that it saves.

TASK is JSON. The rank takes batches, and saves each as a step in a file of its own. It ends after
the last batch, or after the number of steps in the task's `end_file`, once that file exists.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import infeed


@dataclass(frozen=True)
class Task:
    """Feed options of a rank. `pause` is its idle time after each step in seconds.

    A job sets `rank`, `folder` (of the rank's steps) and `end_file`.
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
    seed: int | None = None
    pause: float = 0.0
    prefetch_bytes: int = 40_000_000
    reconnect_timeout: float = 120.0

    def __str__(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Step:
    """Step of a rank.

    `samples` holds a digest of each slot, over every array's bytes; `digest` covers the batch:
    these digests, start, ids and mask. `cursor` is the feed's state after the step. `wait_seconds`
    is the duration of next().
    """

    start: int
    sample_ids: list[int]
    mask: list[bool]
    samples: list[str]
    digest: str
    cursor: dict[str, Any]
    wait_seconds: float


def save(content: dict[str, Any], file: Path) -> None:
    """Writes JSON so that a kill leaves the whole file or none."""
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.rename(file)


def steps_of(folder: Path) -> list[Step]:
    """Returns the saved steps of a rank, in order."""
    return [Step(**json.loads(file.read_text())) for file in sorted(folder.glob("*.json"))]


def train(task: Task) -> None:
    """Runs a rank to its end."""
    folder, end_file = Path(task.folder), Path(task.end_file)
    with infeed.connect(
        task.target,
        task.pipeline,
        batch_size=task.batch_size,
        shard=infeed.Shard(task.rank, task.world_size),
        seed=task.seed,
        state=task.cursor,
        epochs=task.epochs,
        remainder="pad",
        prefetch_bytes=task.prefetch_bytes,
        timeout=120,
        reconnect_timeout=task.reconnect_timeout,
    ) as feed:
        number = 0
        while not (end_file.exists() and number >= int(end_file.read_text())):
            requested_at = time.monotonic()
            batch = next(feed, None)
            if batch is None:
                break
            step = step_of(batch, feed.state(), time.monotonic() - requested_at)
            save(asdict(step), folder / f"{number:08}.json")
            number += 1
            time.sleep(task.pause)
        save(asdict(feed.stats()), folder / "stats")


def step_of(batch: infeed.Batch, cursor: dict[str, Any], wait_seconds: float) -> Step:
    samples = [_sample_digest(batch, slot) for slot in range(batch.slots)]
    ids, mask = batch.sample_ids.tolist(), batch.mask.tolist()
    content = json.dumps([batch.start, batch.epoch, ids, mask, samples])
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Step(batch.start, ids, mask, samples, digest, cursor, wait_seconds)


def _sample_digest(batch: infeed.Batch, slot: int) -> str:
    digest = hashlib.sha256()
    for name in sorted(batch):
        array = batch[name][slot]
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    train(Task(**json.loads(sys.argv[1])))
