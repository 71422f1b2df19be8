"""Server states: health, and the turn to connect where one server serves at a time."""

from __future__ import annotations

from infeed.prefetch.server_state import ServerStates
from infeed.shared.errors import FingerprintError, ServerUnavailableError


def states_of(names: str = "abc") -> ServerStates:
    states = ServerStates()
    states.add(names)
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
    states["b"].active = True
    assert turns(states, "ac") == ""
    states["b"].on_stream_accepted()
    assert turns(states, "ac") == ""


def test_healthy_server_goes_before_unhealthy_ones() -> None:
    for error in (LOST, MISMATCH):
        states = states_of()
        states["a"].active = True
        if error is LOST:
            states["a"].on_connection_lost(LOST, 0.0)
        else:
            states["a"].leave_out(MISMATCH, None, 0.0)
        assert states["a"].unhealthy
        assert turns(states) == "b"


def test_any_server_may_try_if_all_are_unhealthy() -> None:
    states = states_of("ab")
    states["a"].on_connection_lost(LOST, 0.0)
    states["b"].leave_out(MISMATCH, None, 0.0)
    assert turns(states, "ab") == "ab"
    states["b"].active = True
    assert turns(states, "ab") == "b"


def test_server_that_was_left_out_is_healthy_after_a_batch() -> None:
    states = states_of()
    states["a"].leave_out(MISMATCH, None, 0.0)
    states["a"].on_stream_accepted()
    assert states["a"].unhealthy
    states["a"].on_batch()
    assert not states["a"].unhealthy
    assert states.errors == {}
    assert turns(states) == "a"


def test_lost_connection_ends_the_leaving_out() -> None:
    states = states_of("ab")
    states["a"].leave_out(MISMATCH, None, 0.0)
    assert not states.all_have_failed(0)
    states["b"].leave_out(MISMATCH, 7, 0.0)
    assert states.all_have_failed(7)
    assert not states.all_have_failed(8)
    states["a"].on_connection_lost(LOST, 0.0)
    assert not states.all_have_failed(7)
    assert states.errors == {"a": LOST, "b": MISMATCH}


def test_adding_a_known_server_keeps_its_state() -> None:
    states = states_of()
    states["a"].on_connection_lost(LOST, 0.0)
    states.add(["a", "d"])
    assert states.errors == {"a": LOST}
    assert len(states) == 4
