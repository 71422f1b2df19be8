"""Which servers of a target are fit, and whose turn it is."""

from __future__ import annotations

from infeed.errors import FingerprintError, ServerUnavailableError
from infeed.members import Members


def members(names: str = "abc") -> Members:
    found = Members()
    found.expect(names)
    return found


def turns(found: Members, names: str = "abc") -> str:
    """Returns the names of those that may connect now."""
    return "".join(name for name in names if found.has_turn(name))


LOST = ServerUnavailableError("cut")
OTHER = FingerprintError("another version")


def test_the_first_by_name_has_the_turn() -> None:
    assert turns(members("cab")) == "a"
    assert turns(members("a"), "a") == "a"


def test_one_that_is_connected_keeps_the_others_waiting() -> None:
    found = members()
    found["b"].entered = True
    assert turns(found, "ac") == ""
    found["b"].opened()
    assert turns(found, "ac") == ""


def test_an_unfit_one_comes_behind_the_fit_ones() -> None:
    for error in (LOST, OTHER):
        found = members()
        found["a"].entered = True
        if error is LOST:
            found["a"].lost(LOST)
        else:
            found["a"].leave_out(OTHER)
        assert found["a"].unfit
        assert turns(found) == "b"


def test_where_none_is_fit_each_may_try_unless_another_is_connected() -> None:
    found = members("ab")
    found["a"].lost(LOST)
    found["b"].leave_out(OTHER)
    assert turns(found, "ab") == "ab"
    found["b"].entered = True
    assert turns(found, "ab") == "b"


def test_an_accepted_stream_makes_fit_again() -> None:
    found = members()
    found["a"].lost(LOST)
    found["a"].leave_out(OTHER)
    found["a"].opened()
    assert not found["a"].unfit
    assert found["a"].open
    assert (found.refusal, found.troubles) == (None, {})
    assert turns(found) == "a"


def test_a_loss_forgets_the_refusal_before_it() -> None:
    found = members("ab")
    found["a"].leave_out(OTHER)
    assert (found.refusal, found.all_refuse) == (OTHER, False)
    found["b"].leave_out(OTHER)
    assert found.all_refuse
    found["a"].opened()
    found["a"].lost(LOST)
    assert not found["a"].open
    assert not found.all_refuse
    assert found.troubles == {"a": "cut"}


def test_those_that_are_expected_again_stay_what_they_are() -> None:
    found = members()
    found["a"].lost(LOST)
    found.expect(["a", "d"])
    assert found.troubles == {"a": "cut"}
    assert len(found) == 4
