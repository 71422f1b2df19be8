"""The longest waits of trainers, and what may have caused them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.stress.chaos.fault_schedule import Event
from tests.stress.chaos.journal import Step
from tests.stress.chaos.outages import Outages

SHOWN = 5
_CAUSE_SECONDS = 25.0
"""Events are shown with a wait that ended no later than so long after them."""


@dataclass(frozen=True)
class Wait:
    """A rank's wait for one batch, and what had happened; seconds, from the beginning.

    For `without_server` of its seconds, no server could have answered.
    """

    rank: int
    step: int
    seconds: float
    without_server: float
    ended_at: float
    events: list[str]

    @property
    def needless(self) -> float:
        """Seconds that it took though there was a server."""
        return self.seconds - self.without_server


def longest_waits(
    ranks: list[list[Step]],
    begin: float,
    happened: list[tuple[float, Event]],
    outages: Outages,
) -> list[Wait]:
    """All but the first of each rank, which is the start-up; the longest needless ones first."""
    found = [
        Wait(
            rank=rank,
            step=step.number,
            seconds=step.waited,
            without_server=outages.seconds_within(step.at - step.waited, step.at),
            ended_at=step.at - begin,
            events=[
                f"{at - begin:.1f} s: {event}"
                for at, event in happened
                if step.at - _CAUSE_SECONDS < at < step.at
            ],
        )
        for rank, steps in enumerate(ranks)
        for step in steps[1:]
    ]
    return sorted(found, key=lambda wait: wait.needless, reverse=True)


__all__ = ["SHOWN", "Wait", "longest_waits"]
