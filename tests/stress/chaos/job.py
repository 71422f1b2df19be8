"""A training job: its ranks as processes, with a journal each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.stress.chaos.journal import Journal
from tests.stress.chaos.processes import ChaosError, Process, until
from tests.stress.chaos.trainer import Task

_EVERY_SECONDS = 0.01


class Job:
    """Started when it is made. Also a context manager: no rank outlives it."""

    def __init__(self, folder: Path, task: Task) -> None:
        """Each rank does the task as its own."""
        folder.mkdir(parents=True)
        self._end = folder / "end"
        self.journals: list[Journal] = []
        self.ranks: list[Process] = []
        for rank in range(task.world_size):
            own = folder / f"rank-{rank}"
            words = str(replace(task, rank=rank, folder=str(own), end=str(self._end)))
            self.journals.append(Journal(own))
            self.ranks.append(
                Process("tests.stress.chaos.trainer", (words,), own.with_suffix(".log"))
            )

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
        """Raises `ChaosError` when it never holds, or a rank ends before."""

        def holds() -> bool:
            self.check()
            return condition()

        until(holds, what, every=_EVERY_SECONDS)

    def check(self) -> None:
        """Raises `ChaosError` if a rank has failed."""
        for rank in self.ranks:
            if rank.status:
                raise ChaosError(f"{rank.name} ended with {rank.status}: {rank.last_words}")

    def wait(self) -> None:
        """Until every rank has come to its end."""
        self.wait_until(lambda: all(rank.status == 0 for rank in self.ranks), "the job ends")

    def close(self) -> None:
        for rank in self.ranks:
            rank.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


__all__ = ["Job"]
