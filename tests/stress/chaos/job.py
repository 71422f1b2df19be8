"""Training job whose ranks are processes, each with a journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.harness.process import ROOT, Process
from tests.harness.server import Launch
from tests.harness.waiting import HarnessError, wait_until
from tests.stress.chaos.journal import Journal
from tests.stress.chaos.trainer import Task

_TRAINER = "tests.stress.chaos.trainer"


class Job:
    """Job that starts on construction. A context manager that kills all ranks at its end."""

    def __init__(self, folder: Path, task: Task, launch: Launch) -> None:
        """Starts one process per rank, each with its own copy of the task."""
        folder.mkdir(parents=True)
        self._end_file = folder / "end"
        self.journals: list[Journal] = []
        self.ranks: list[Process] = []
        for rank in range(task.world_size):
            rank_folder = folder / f"rank-{rank}"
            rank_task = replace(
                task, rank=rank, folder=str(rank_folder), end_file=str(self._end_file)
            )
            self.journals.append(Journal(rank_folder))
            self.ranks.append(launch(["python", "-m", _TRAINER, str(rank_task)], rank_folder, ROOT))

    @property
    def saved_steps(self) -> list[int]:
        """Number of saved steps of each rank."""
        return [journal.step_count for journal in self.journals]

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
                raise HarnessError(
                    f"{rank.log.name} exited with status {rank.status}: {rank.log_tail}"
                )

    def wait(self) -> None:
        """Waits until every rank has ended."""
        self.wait_until(lambda: all(rank.status == 0 for rank in self.ranks), "the job ends")

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
