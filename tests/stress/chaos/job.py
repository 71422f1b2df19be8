"""Training job whose ranks are processes, and the count of the samples that they were given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.harness.process import ROOT, Process
from tests.harness.server import Launch
from tests.harness.waiting import HarnessError, wait_until
from tests.stress.chaos.trainer import Step, Task, steps_of

_TRAINER = "tests.stress.chaos.trainer"


class Job:
    """Job that starts on construction. A context manager that kills all ranks at its end."""

    def __init__(self, folder: Path, task: Task, launch: Launch) -> None:
        """Starts one process per rank, each with its own copy of the task."""
        self._end_file = folder / "end"
        self._folders = [folder / f"rank-{rank}" for rank in range(task.world_size)]
        self.ranks: list[Process] = []
        for rank, own in enumerate(self._folders):
            own.mkdir(parents=True)
            copy = replace(task, rank=rank, folder=str(own), end_file=str(self._end_file))
            self.ranks.append(launch(["python", "-m", _TRAINER, str(copy)], own, ROOT))

    @property
    def saved_steps(self) -> list[int]:
        """Number of saved steps of each rank. They have no gaps: a rank saves them in order."""
        return [len(list(folder.glob("*.json"))) for folder in self._folders]

    def committed_steps(self) -> list[list[Step]]:
        """Returns each rank's committed steps: the steps that every rank has saved.

        Later steps are missing from some ranks; a resumed job takes them again.
        """
        count = min(self.saved_steps)
        return [steps_of(folder)[:count] for folder in self._folders]

    def stats(self) -> list[dict[str, Any]]:
        """Returns the statistics that each rank saved at its end."""
        return [json.loads((folder / "stats").read_text()) for folder in self._folders]

    def end_after(self, steps: int) -> None:
        """Requests that each rank ends after this number of steps."""
        part = self._end_file.with_suffix(".part")
        part.write_text(str(steps))
        part.rename(self._end_file)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition. Raises `HarnessError` on a timeout or if a rank fails."""

        def checked_condition() -> bool:
            self.check()
            return condition()

        wait_until(checked_condition, what)

    def check(self) -> None:
        """Raises `HarnessError` if a rank has failed."""
        for rank in self.ranks:
            if rank.status:
                name = rank.log.name
                raise HarnessError(f"{name} exited with status {rank.status}: {rank.log_tail}")

    def wait(self) -> list[list[Step]]:
        """Waits until every rank has ended; returns the committed steps of each."""
        while not self._has_ended():
            # Thousands of steps take longer than one timeout.
            moved = partial(self._has_moved, self.saved_steps)
            self.wait_until(moved, "the job ends, or saves a step")
        return self.committed_steps()

    def _has_ended(self) -> bool:
        return all(rank.status == 0 for rank in self.ranks)

    def _has_moved(self, saved: list[int]) -> bool:
        return self._has_ended() or self.saved_steps != saved

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Audit:
    """Sample counts; `repeated` counts deliveries after a sample's first in an epoch."""

    epochs: int
    samples: int
    lost: int
    repeated: int

    @property
    def exact(self) -> bool:
        return self.epochs > 0 and not self.lost and not self.repeated


def audit(steps: Iterable[Step], sample_count: int, epochs: int) -> Audit:
    """Counts the samples in the delivered steps of all ranks, in the first `epochs` epochs."""
    counts: list[Counter[int]] = [Counter() for _ in range(epochs)]
    for step in steps:
        for slot, index in enumerate(step.sample_ids):
            epoch = (step.start + slot) // sample_count
            if step.mask[slot] and epoch < epochs:
                counts[epoch][index] += 1
    return Audit(
        epochs,
        sum(epoch_counts.total() for epoch_counts in counts),
        sum(index not in epoch_counts for epoch_counts in counts for index in range(sample_count)),
        sum(count - 1 for epoch_counts in counts for count in epoch_counts.values()),
    )
