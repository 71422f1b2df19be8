"""Trainer kills: a job that is repeatedly killed and resumed from its last checkpoint.

The checkpoint is one cursor for the whole job, saved at the last step which *every* rank has saved.
Later steps of single ranks are discarded and taken again by the next job, which has another world
size and often another batch size. The committed steps together must hold every sample once an
epoch, equal to the samples of an undisturbed run.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.harness.server import Launch, spawn
from tests.harness.waiting import HarnessError
from tests.stress.chaos.job import Job, audit
from tests.stress.chaos.pipelines import ServedPipeline
from tests.stress.chaos.servers import FaultyServer
from tests.stress.chaos.trainer import Step, Task

WORLD_SIZES = (1, 2, 3, 4)

_PAUSE_SECONDS = 0.05
_MAX_STEPS = 6
_MAX_START_SECONDS = 1.5
"""Maximum time from the start to a kill before the first step."""

_MAX_STEP_SECONDS = 0.3
"""Maximum time from a step to the kill after it."""

_MAX_SURVIVAL_SECONDS = 0.3
"""Maximum time from the kill of one rank to the kill of the others."""


def run_trainer_kills(
    served: ServedPipeline, folder: Path, seed: int, count: int, launch: Launch = spawn
) -> dict[str, Any]:
    """Kills jobs `count` times, then runs one to the end of an epoch; returns the report. Raises
    `HarnessError`."""
    rng = random.Random(seed)
    steps: list[Step] = []
    generations: list[dict[str, int]] = []
    cursor: dict[str, Any] | None = None
    world_size = 0
    begin = time.monotonic()
    with FaultyServer(served.definition, folder, "steady", launch) as server:
        for number in range(count + 1):
            world_size = rng.choice([size for size in WORLD_SIZES if size != world_size])
            batch_size = rng.choice([served.batch_size // 4, served.batch_size // 2 + 1])
            position = cursor["position"] if cursor else 0
            is_last = number == count
            epochs = position // served.sample_count + 1 if is_last else None
            task = Task(
                target=server.address,
                pipeline=served.name,
                world_size=world_size,
                batch_size=batch_size,
                cursor=cursor,
                epochs=epochs,
                pause=_PAUSE_SECONDS,
                prefetch_bytes=served.prefetch_bytes,
            )
            with Job(folder / f"job-{number:02}", task, launch) as job:
                if is_last:
                    job.wait()
                else:
                    _kill(job, rng)
            ranks = job.committed_steps()
            cursor = _checkpoint(ranks) or cursor
            rank_steps = [step for rank in ranks for step in rank]
            steps += rank_steps
            generations.append(
                {
                    "world_size": world_size,
                    "batch_size": batch_size,
                    "position": position,
                    "committed": len(ranks[0]),
                    "discarded": sum(job.saved_steps) - len(rank_steps),
                }
            )
        epochs = cursor["position"] // served.sample_count if cursor else 0
        expected = _undisturbed_samples(served, folder, server.address, epochs, launch)
    counted = audit(steps, served.sample_count, epochs)
    equal = sum(expected.get(position) == digest for position, digest in _samples(steps))
    return {
        "exact": counted.exact and equal == counted.samples,
        "pipeline": served.name,
        "kills": count,
        "seconds": time.monotonic() - begin,
        "generations": generations,
        "samples_equal": equal,
        "audit": asdict(counted),
    }


def _kill(job: Job, rng: random.Random) -> None:
    """Kills one rank at a random time in a random step, and the other ranks shortly after."""
    victim = rng.randrange(len(job.ranks))
    steps = rng.randrange(_MAX_STEPS + 1)
    if steps:
        job.wait_until(lambda: job.saved_steps[victim] >= steps, f"step {steps} is saved")
    time.sleep(rng.uniform(0, _MAX_STEP_SECONDS if steps else _MAX_START_SECONDS))
    job.check()
    job.ranks[victim].kill()
    time.sleep(rng.uniform(0, _MAX_SURVIVAL_SECONDS))
    job.close()


def _checkpoint(ranks: list[list[Step]]) -> dict[str, Any] | None:
    """Returns the cursor after the last committed step; None if there is no step."""
    if not ranks[0]:
        return None
    cursor, *others = [rank[-1].cursor for rank in ranks]
    if any(other != cursor for other in others):
        raise HarnessError(f"the ranks' cursors differ: {cursor}, {others}")
    return cursor


def _undisturbed_samples(
    served: ServedPipeline, folder: Path, target: str, epochs: int, launch: Launch
) -> dict[int, str]:
    """Returns the digest of the sample at each position, from an undisturbed job of one rank."""
    task = Task(target, served.name, 1, served.batch_size, epochs=epochs)
    with Job(folder / "undisturbed", task, launch) as job:
        (steps,) = job.wait()
    return dict(_samples(steps))


def _samples(steps: list[Step]) -> list[tuple[int, str]]:
    return [
        (step.start + slot, digest)
        for step in steps
        for slot, digest in enumerate(step.samples)
        if step.mask[slot]
    ]
