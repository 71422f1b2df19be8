"""A job that is killed again and again, and goes on from its last checkpoint with other ranks.

The checkpoint is one cursor for the whole job, that of the last step which *every* rank has saved.
What single ranks took behind it is thrown away and taken again by the next job, whose world size
and batch size differ. What counts, together, has to be every sample once an epoch, to the pixel.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.server import Launch, spawn
from tests.harness.waiting import HarnessError
from tests.stress.chaos.audit import Audit, audit
from tests.stress.chaos.job import Job
from tests.stress.chaos.journal import Step, committed
from tests.stress.chaos.pipelines import Served
from tests.stress.chaos.servers import FaultyServer
from tests.stress.chaos.trainer import Task

WORLD_SIZES = (1, 2, 3, 4)

_PAUSE_SECONDS = 0.05
_MOST_STEPS = 6
_START_SECONDS = 1.5
"""A rank that is killed before its first step is killed within this time."""

_STEP_SECONDS = 0.3
_SURVIVED_SECONDS = 0.3
"""How long other ranks may go on when one has been killed."""


@dataclass(frozen=True)
class Generation:
    """A job between two kills: from which position it went, how many of its steps count, and how
    many single ranks had taken behind them."""

    world_size: int
    batch_size: int
    position: int
    committed: int
    discarded: int


@dataclass(frozen=True)
class TrainerKills:
    """What became of it. `samples_equal` of `audit.samples` were those of an undisturbed run."""

    pipeline: str
    seed: int
    kills: int
    seconds: float
    generations: list[Generation]
    samples_equal: int
    audit: Audit

    @property
    def exact(self) -> bool:
        return self.audit.exact and self.samples_equal == self.audit.samples


def run_trainer_kills(
    served: Served, folder: Path, seed: int, count: int, launch: Launch = spawn
) -> TrainerKills:
    """`count` kills, then a last job to the end of an epoch. Raises `HarnessError`."""
    rng = random.Random(seed)
    steps: list[Step] = []
    generations: list[Generation] = []
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
            ranks = committed(job.journals)
            cursor = _checkpoint(ranks) or cursor
            steps += [step for rank in ranks for step in rank]
            taken = [len(rank) for rank in ranks]
            generations.append(
                Generation(world_size, batch_size, position, taken[0], sum(job.taken) - sum(taken))
            )
        epochs = cursor["position"] // served.sample_count if cursor else 0
        truth = _truth(served, folder, server.address, epochs, launch)
    return TrainerKills(
        pipeline=served.name,
        seed=seed,
        kills=count,
        seconds=time.monotonic() - begin,
        generations=generations,
        samples_equal=_equal(steps, truth),
        audit=audit(steps, served.sample_count, epochs),
    )


def _kill(job: Job, rng: random.Random) -> None:
    """One rank at a random moment of a random step; a little later, those that are left."""
    victim = rng.randrange(len(job.ranks))
    after = rng.randrange(_MOST_STEPS + 1)
    if after:
        job.wait_until(lambda: job.taken[victim] >= after, f"step {after} is taken")
    time.sleep(rng.uniform(0, _STEP_SECONDS if after else _START_SECONDS))
    job.check()
    job.ranks[victim].kill()
    time.sleep(rng.uniform(0, _SURVIVED_SECONDS))
    job.close()


def _checkpoint(ranks: list[list[Step]]) -> dict[str, Any] | None:
    """The cursor of the last step that counts; None when there is none."""
    if not ranks[0]:
        return None
    cursor, *others = [rank[-1].cursor for rank in ranks]
    if any(other != cursor for other in others):
        raise HarnessError(f"ranks disagree on where the job stands: {cursor}, {others}")
    return cursor


def _truth(
    served: Served, folder: Path, target: str, epochs: int, launch: Launch
) -> dict[int, str]:
    """The digest of the sample at each position, of a job of one rank that nobody disturbs."""
    task = Task(target, served.name, 1, served.batch_size, epochs=epochs)
    with Job(folder / "undisturbed", task, launch) as job:
        job.wait()
        (steps,) = committed(job.journals)
    return dict(_samples(steps))


def _equal(steps: list[Step], truth: dict[int, str]) -> int:
    return sum(truth.get(position) == digest for position, digest in _samples(steps))


def _samples(steps: list[Step]) -> list[tuple[int, str]]:
    return [
        (step.start + slot, digest)
        for step in steps
        for slot, digest in enumerate(step.samples)
        if step.mask[slot]
    ]


__all__ = ["Generation", "TrainerKills", "run_trainer_kills"]
