"""Journal of a rank on disk: one file per step, written atomically."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Step:
    """Step of a rank.

    `samples` holds a digest of each slot, over every array's bytes; `digest` covers the batch:
    these digests, start, ids and mask. `cursor` is the feed's state after the step. `wait_seconds`
    is the duration of next().
    """

    number: int
    start: int
    sample_ids: list[int]
    mask: list[bool]
    samples: list[str]
    digest: str
    cursor: dict[str, Any]
    wait_seconds: float


class Journal:
    """Steps of one rank, in their own folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def save(self, step: Step) -> None:
        self._write(f"{step.number:08}.json", asdict(step))

    def finish(self, summary: dict[str, Any]) -> None:
        """Saves the feed's statistics at the end of the rank."""
        self._write("end", summary)

    @property
    def summary(self) -> dict[str, Any]:
        """Feed statistics that the rank saved at its end."""
        return dict(json.loads((self._folder / "end").read_text()))

    @property
    def step_count(self) -> int:
        """Number of saved steps. They have no gaps, because a rank saves them in order."""
        return len(list(self._folder.glob("*.json")))

    def steps(self) -> list[Step]:
        """Returns the saved steps in order."""
        return [
            Step(**json.loads(file.read_text())) for file in sorted(self._folder.glob("*.json"))
        ]

    def _write(self, name: str, content: dict[str, Any]) -> None:
        part = self._folder / f"{name}.part"
        part.write_text(json.dumps(content))
        part.rename(self._folder / name)


def committed_steps(journals: list[Journal]) -> list[list[Step]]:
    """Returns each rank's committed steps: those that every rank has saved.

    Later steps are missing from some ranks; a resumed job takes them again.
    """
    ranks = [journal.steps() for journal in journals]
    count = min(len(steps) for steps in ranks)
    return [steps[:count] for steps in ranks]
