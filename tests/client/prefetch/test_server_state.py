"""Server states: health, and the turn to connect where one server serves at a time."""

from __future__ import annotations

from tests.client.plans import plan_of

from infeed.prefetch.server_state import (
    CONFIRMATION_TIMEOUT_SECONDS,
    ServerState,
    ServerStates,
    StepFailures,
)
from infeed.prefetch.stream import Stream
from infeed.shared.errors import FingerprintError, SampleError, ServerUnavailableError


def states_of(names: str = "abc") -> ServerStates:
    states = ServerStates(plan_of())
    states.update((name, ServerState()) for name in names)
    return states


def turns(states: ServerStates, names: str = "abc") -> str:
    """Returns the names of the servers that may connect now."""
    return "".join(name for name in names if states.has_turn(name))


LOST = ServerUnavailableError("cut")
MISMATCH = FingerprintError("another version")


def test_first_server_by_name_has_the_turn() -> None:
    assert turns(states_of("cab")) == "a"
    assert turns(states_of("a"), "a") == "a"


def test_other_servers_wait_while_one_is_active() -> None:
    states = states_of()
    states["b"].active.add("b")
    assert turns(states, "ac") == ""
    states.on_stream_accepted(Stream("b"), now=0.0)
    assert turns(states, "ac") == ""


def test_healthy_server_goes_before_unhealthy_ones() -> None:
    for error in (LOST, MISMATCH):
        states = states_of()
        states["a"].active.add("a")
        if error is LOST:
            states.lose(Stream("a"), LOST, 0.0)
        else:
            states.leave_out(Stream("a"), MISMATCH, None, 0.0)
        assert states["a"].unhealthy
        assert turns(states) == "b"


def test_any_server_may_try_if_all_are_unhealthy() -> None:
    states = states_of("ab")
    states.lose(Stream("a"), LOST, 0.0)
    states.leave_out(Stream("b"), MISMATCH, None, 0.0)
    assert turns(states, "ab") == "ab"
    states["b"].active.add("b")
    assert turns(states, "ab") == "b"


def test_failed_step_is_unanswered_after_the_timeout_alone() -> None:
    failures, error = StepFailures(), SampleError("bad")
    assert failures.unanswered(3, 100.0, 0.0) is None
    assert not failures.is_confirmed(3, "a", error, 100.0)
    assert failures.unanswered(3, 99.9 + CONFIRMATION_TIMEOUT_SECONDS, 0.0) is None
    assert failures.unanswered(3, 100.0 + CONFIRMATION_TIMEOUT_SECONDS, 0.0) is error
    assert failures.unanswered(4, 1e9, 0.0) is None
    assert failures.unanswered(3, 100.0 + CONFIRMATION_TIMEOUT_SECONDS, 1e3) is None  # is usual
    failures.on_delivered(3, 101.0)
    assert failures.unanswered(3, 1e9, 0.0) is None
