"""State clocks: the times of a pipeline's states."""

from __future__ import annotations

from infeed_server.engines.state_clock import PipelineState, StateClock


class Pipeline:
    """A pipeline whose state and time the test sets."""

    def __init__(self) -> None:
        self.state: PipelineState = "no_request"
        self.now = 100.0
        self.clock = StateClock(lambda: self.state, lambda: self.now)

    def go(self, state: PipelineState, seconds: float) -> None:
        self.state = state
        self.clock.update()
        self.now += seconds


def test_times_of_the_states_add_up() -> None:
    pipeline = Pipeline()
    states: tuple[tuple[PipelineState, float], ...]
    states = (("source", 1.0), ("transform", 2.0), ("transform", 4.0), ("no_budget", 8.0))
    for state, seconds in states:
        pipeline.go(state, seconds)
    expected = {"no_request": 0.0, "source": 1.0, "transform": 6.0, "no_budget": 8.0, "repair": 0.0}
    assert pipeline.clock.seconds() == expected
    assert sum(pipeline.clock.seconds().values()) == pipeline.now - 100


def test_current_state_counts_before_it_ends() -> None:
    pipeline = Pipeline()
    pipeline.now += 5
    assert pipeline.clock.seconds()["no_request"] == 5
    assert pipeline.clock.seconds()["no_request"] == 5
