"""A training job: its ranks as processes, with a journal each."""

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
    """Started when it is made. Also a context manager: no rank outlives it."""

    def __init__(self, folder: Path, task: Task, launch: Launch) -> None:
        """Each rank does the task as its own."""
        folder.mkdir(parents=True)
        self._end = folder / "end"
        self.journals: list[Journal] = []
        self.ranks: list[Process] = []
        for rank in range(task.world_size):
            own = folder / f"rank-{rank}"
            own_task = str(replace(task, rank=rank, folder=str(own), end=str(self._end)))
            self.journals.append(Journal(own))
            self.ranks.append(launch(["python", "-m", _TRAINER, own_task], own, ROOT))

    @property
    def taken(self) -> list[int]:
        """The steps that each rank has saved."""
        return [journal.taken for journal in self.journals]

    def end_behind(self, step: int) -> None:
        """Ranks end when they have taken so many steps."""
        part = self._end.with_suffix(".part")
        part.write_text(str(step))
        part.rename(self._end)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Raises `HarnessError` when it never holds, or a rank ends before."""

        def holds() -> bool:
            self.check()
            return condition()

        wait_until(holds, what)

    def check(self) -> None:
        """Raises `HarnessError` if a rank has failed."""
        for rank in self.ranks:
            if rank.status:
                raise HarnessError(f"{rank.log.name} ended with {rank.status}: {rank.log_tail}")

    def wait(self) -> None:
        """Until every rank has come to its end."""
        self.wait_until(lambda: all(rank.status == 0 for rank in self.ranks), "the job ends")

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Job"]
