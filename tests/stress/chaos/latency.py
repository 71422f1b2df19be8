"""Longest waits of trainers, with their possible causes."""

from __future__ import annotations

from dataclasses import dataclass

from tests.stress.chaos.fault_schedule import Event
from tests.stress.chaos.journal import Step
from tests.stress.chaos.outages import Outages

MAX_SHOWN_WAITS = 5
_CAUSE_WINDOW_SECONDS = 25.0
"""Maximum time from an event to the end of a wait that it may have caused."""


@dataclass(frozen=True)
class Wait:
    """Wait of a rank for one batch, with the events before its end.

    During `without_server` of its seconds, no server could answer. `ended_at` is in seconds after
    the start of the run.
    """

    rank: int
    step: int
    seconds: float
    without_server: float
    ended_at: float
    events: list[str]

    @property
    def needless(self) -> float:
        """Seconds of the wait in which a server could answer."""
        return self.seconds - self.without_server


def longest_waits(
    ranks: list[list[Step]],
    begin: float,
    applied: list[tuple[float, Event]],
    outages: Outages,
) -> list[Wait]:
    """Returns the waits except each rank's first, its start-up; the longest needless one first."""
    waits = [
        Wait(
            rank=rank,
            step=step.number,
            seconds=step.wait_seconds,
            without_server=outages.seconds_within(
                step.received_at - step.wait_seconds, step.received_at
            ),
            ended_at=step.received_at - begin,
            events=[
                f"{time - begin:.1f} s: {event}"
                for time, event in applied
                if step.received_at - _CAUSE_WINDOW_SECONDS < time < step.received_at
            ],
        )
        for rank, steps in enumerate(ranks)
        for step in steps[1:]
    ]
    return sorted(waits, key=lambda wait: wait.needless, reverse=True)


__all__ = ["MAX_SHOWN_WAITS", "Wait", "longest_waits"]
