"""Training loop of a library that reports the end of each step, as Lightning's Trainer does."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Place:
    """A dataset's place in a training: its epoch, and its state if a checkpoint was restored."""

    epoch: int
    state: Mapping[str, Any] | None


class TrainingLoop(Protocol):
    """A training that is running in this process."""

    def place(self, dataset: object) -> Place | None:
        """Returns the place of a dataset that it trains on, None for another one."""
        ...


_running: weakref.ref[TrainingLoop] | None = None


def begin_loop(loop: TrainingLoop) -> None:
    """Makes it the training loop of this process, in place of the one before."""
    global _running  # noqa: PLW0603 - a process has one training loop, and its datasets do not know it
    _running = weakref.ref(loop)


def place_in_loop(dataset: object) -> Place | None:
    """Returns the place of a dataset in the training of this process, None without one."""
    loop = None if _running is None else _running()
    return None if loop is None else loop.place(dataset)
