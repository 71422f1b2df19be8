"""Simulated feeds: through faults, every batch comes once and in order. See simulation.py."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation import simulation
from tests.simulation.faults import drain_without_end
from tests.simulation.simulation import Simulation, ViolationError

from infeed.prefetch.coordinator import Coordinator
from infeed.prefetch.step_scheduler import StepScheduler

QUICK_SEEDS = range(16)


def first_violation(seeds: range, faults: int = 100) -> str | None:
    """Returns what went wrong in the first seed in which something did."""
    for seed in seeds:
        try:
            Simulation(seed, faults).run()
        except ViolationError as violation:
            return str(violation)
    return None


def test_feeds_keep_their_promises_through_faults() -> None:
    assert first_violation(QUICK_SEEDS) is None


@pytest.mark.slow
def test_feeds_keep_their_promises_through_100_000_faults() -> None:
    assert first_violation(range(1000, 1250), 400) is None


def test_a_seed_gives_the_same_run_again() -> None:
    runs = [Simulation(3, 100) for _ in range(2)]
    for run in runs:
        run.run()
    first, second = (
        (run.world.now, run.steps, run.feeds, run.interrupts, run.faults) for run in runs
    )
    assert first == second


def test_simulation_finds_a_feed_that_ends_as_if_complete(monkeypatch: Any) -> None:
    def fail(self: StepScheduler[Any], step: int, item: Any) -> None:
        self.end_at(step)

    monkeypatch.setattr(StepScheduler, "fail", fail)
    assert "end after" in (first_violation(QUICK_SEEDS) or "")


def test_simulation_finds_steps_that_are_not_reassigned(monkeypatch: Any) -> None:
    def forget(self: Any, server: str) -> None:
        self.servers.pop(server, None)

    monkeypatch.setattr(StepScheduler, "remove_server", forget)
    assert first_violation(QUICK_SEEDS)


def test_feeds_leave_streams_whose_announced_end_does_not_come(monkeypatch: Any) -> None:
    # Alone, and with pauses: most other faults end the stream, and so hide this one.
    monkeypatch.setattr(simulation, "FAULTS", (drain_without_end,))
    monkeypatch.setattr(simulation, "PAUSES_SECONDS", (400.0,))
    seeds = range(2)
    assert first_violation(seeds, 10) is None
    monkeypatch.setattr(Coordinator, "is_overdue", lambda *_: False)
    assert "with a good server" in (first_violation(seeds, 10) or "")
