"""Figures of trainers: utilisation, waits and readiness, from the steps of the measured time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from infeed.loadtest.tally import Tally, Trainer, joined
from infeed.shared.spec import Array
from infeed.stats import STARVED_THRESHOLD_SECONDS


@dataclass(frozen=True)
class Figures:
    """The figures of one trainer, or of all together. Times are in seconds."""

    steps: int
    utilisation: float | None
    """Compute ÷ time, 0 to 1, as DLIO and MLPerf Storage define it; None without compute."""
    wait_p50: float
    wait_p99: float
    wait_p999: float
    wait_max: float
    starved_steps: int
    """Steps that waited for more than a millisecond."""
    readiness: float
    """Share of the steps whose batch was there when it was requested."""
    step_seconds: float
    """Mean time of a step without its wait."""
    unanswered_seconds: float = 0.0
    """The longest wait for a batch that had not come at the end, which is among the waits: without
    it, servers that stop for good would not be seen."""

    @property
    def starved_share(self) -> float:
        """Share of the steps that waited, 0 to 1."""
        return self.starved_steps / self.steps if self.steps else 0.0


@dataclass(frozen=True)
class TrainerFigures:
    """One trainer."""

    rank: int
    figures: Figures
    first_batch_seconds: tuple[float, ...]
    """From the start to the first batch, for each start: more than one where it was killed."""
    total_steps: int
    """Steps of the whole test."""
    reconnects: int
    hedges: int
    cpu_share: float
    """Processors that its process used."""
    memory_bytes: int


COLUMNS = (
    *("requested_at", "wait_seconds", "busy_seconds", "ready", "samples"),
    "unanswered_seconds",
)


def selected_steps(trainer: Trainer, begin: float, end: float) -> dict[str, Array]:
    """Returns the arrays of the steps that began and had their batch in a time.

    `unanswered_seconds` has the part of a wait in it whose batch had not come at its end.
    """
    names = ("requested_at", "wait_seconds", "busy_seconds", "ready", "sample_ids")
    arrays = {name: joined(trainer.lives, name) for name in names}
    ids = arrays.pop("sample_ids")
    arrays["samples"] = (ids >= 0).sum(axis=-1) if ids.ndim == 2 else np.empty(0)
    received_at = arrays["requested_at"] + arrays["wait_seconds"]
    inside = (arrays["requested_at"] >= begin) & (received_at <= end)
    selected = {name: values[inside] for name, values in arrays.items()}
    return {**selected, "unanswered_seconds": _unanswered(trainer, begin, end)}


def _unanswered(trainer: Trainer, begin: float, end: float) -> Array:
    """Returns the length of the last wait if it had no batch; nothing for the first of a life."""
    life = trainer.lives[-1] if trainer.lives else None
    at = life.last.unanswered_at if life is not None and life.last is not None else None
    if life is None or at is None or not any(map(len, life.steps)):
        return np.empty(0)
    return np.maximum(0.0, [end - max(begin, at)])


def figures_of(arrays: Mapping[str, Array], step_seconds: float) -> Figures:
    taken, busy = arrays["wait_seconds"], arrays["busy_seconds"]
    unanswered = arrays["unanswered_seconds"]
    waits, count = np.concatenate([taken, unanswered]), len(taken)
    total = float(waits.sum() + busy.sum())
    quantiles = (
        np.quantile(waits, [0.5, 0.99, 0.999], method="higher") if len(waits) else np.zeros(3)
    )
    utilisation = count * step_seconds / total if total else 0.0
    return Figures(
        steps=count,
        utilisation=min(1.0, utilisation) if step_seconds else None,
        wait_p50=float(quantiles[0]),
        wait_p99=float(quantiles[1]),
        wait_p999=float(quantiles[2]),
        wait_max=float(waits.max(initial=0.0)),
        starved_steps=int((taken > STARVED_THRESHOLD_SECONDS).sum()),
        readiness=float(arrays["ready"].mean()) if count else 0.0,
        step_seconds=float(busy.mean()) if count else 0.0,
        unanswered_seconds=float(unanswered.max(initial=0.0)),
    )


def trainer_figures(trainer: Trainer, tally: Tally, begin: float, end: float) -> TrainerFigures:
    lives = trainer.lives
    ends = [each.last for each in lives if each.last is not None]
    usage = [each for each in trainer.usage if begin <= each[0] <= end]
    cpu_share = 0.0
    if len(usage) > 1 and usage[-1][0] > usage[0][0]:
        cpu_share = (usage[-1][1] - usage[0][1]) / (usage[-1][0] - usage[0][0])
    return TrainerFigures(
        rank=trainer.rank,
        figures=figures_of(selected_steps(trainer, begin, end), tally.plan.step_seconds),
        first_batch_seconds=tuple(each.first.at - each.started_at for each in lives if each.first),
        total_steps=trainer.step_count,
        reconnects=sum(each.reconnects for each in ends),
        hedges=sum(each.hedges for each in ends),
        cpu_share=cpu_share,
        memory_bytes=max((each[2] for each in trainer.usage), default=0),
    )
