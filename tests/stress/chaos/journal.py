"""What a rank keeps on disk: a file a step, there whole or not at all, whenever it is killed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """A step that a rank has taken.

    `samples` holds a digest of each slot, over every array's bytes; `digest` is of the whole batch:
    those, and start, ids and mask. `cursor` is the feed's behind the step. `waited` is what next()
    took, in seconds, and `at` when it returned (the machine's monotonic clock).
    """

    number: int
    start: int
    sample_ids: list[int]
    mask: list[bool]
    samples: list[str]
    digest: str
    cursor: dict[str, Any]
    waited: float
    at: float


class Journal:
    """The steps of one rank, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def save(self, step: Step) -> None:
        self._write(f"{step.number:08}.json", asdict(step))

    def finish(self, summary: dict[str, Any]) -> None:
        """The rank has come to its end."""
        self._write("end", summary)

    @property
    def summary(self) -> dict[str, Any]:
        """What the rank said at its end."""
        return dict(json.loads((self._folder / "end").read_text()))

    @property
    def taken(self) -> int:
        """Steps that are saved. They have no gaps, for a rank saves one after the other."""
        return len(list(self._folder.glob("*.json")))

    def steps(self) -> list[Step]:
        """Those that are saved, in order."""
        return [
            Step(**json.loads(file.read_text())) for file in sorted(self._folder.glob("*.json"))
        ]

    def _write(self, name: str, content: dict[str, Any]) -> None:
        part = self._folder / f"{name}.part"
        part.write_text(json.dumps(content))
        part.rename(self._folder / name)


def committed(journals: list[Journal]) -> list[list[Step]]:
    """The steps of each rank that count: those that every rank has saved.

    What is behind them, some ranks have taken and others have not; a job that goes on takes it
    again.
    """
    ranks = [journal.steps() for journal in journals]
    least = min(len(steps) for steps in ranks)
    return [steps[:least] for steps in ranks]


__all__ = ["Journal", "Step", "committed"]
