"""Exceptions: the tree is complete and its reasons are stable."""

from __future__ import annotations

import pickle
import re
import traceback

import pytest

import infeed
from infeed.shared import errors
from infeed.shared.errors import (
    BY_REASON,
    MAX_TEXT_CHARACTERS,
    ConfigError,
    InfeedError,
    SampleError,
    UserCodeError,
    within,
)

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, InfeedError)
]
LEAVES = [error for error in ALL if error is not InfeedError]
CODES = {
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
}


@pytest.mark.parametrize("error", ALL)
def test_error_is_public_and_documented(error: type[InfeedError]) -> None:
    assert error.__name__ in infeed.__all__
    assert error.__doc__
    assert error.code in CODES


@pytest.mark.parametrize("error", LEAVES)
def test_error_has_its_public_name_and_can_be_pickled(error: type[InfeedError]) -> None:
    (line,) = traceback.format_exception_only(error("what"))
    assert line == f"infeed.{error.__name__}: what\n"
    copied = pickle.loads(pickle.dumps(error("what", file="a.jpg")))
    assert (type(copied), copied.message, copied.metadata) == (error, "what", {"file": "a.jpg"})


def test_the_place_of_an_error_is_a_field() -> None:
    with pytest.raises(ConfigError) as caught, within("transforms", 2), within("resize"):
        raise ConfigError("should be positive", at=("size",))
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.at == ("transforms", 2, "resize", "size")
    assert str(error) == error.message == "transforms[2].resize.size: should be positive"
    assert error.problem == "should be positive"


def test_a_sample_of_an_error_is_a_field() -> None:
    error = pickle.loads(pickle.dumps(SampleError("has no label", sample=3)))
    assert (error.message, error.metadata) == ("sample 3 has no label", {"sample_id": "3"})


def test_reasons_are_unique_and_upper_case() -> None:
    reasons = [error.reason for error in LEAVES]
    assert len(set(reasons)) == len(reasons)
    assert all(re.fullmatch(r"[A-Z][A-Z_]*[A-Z]", reason) for reason in reasons)
    table = {error.reason: error for error in LEAVES}
    assert table == BY_REASON


def test_unknown_reason_becomes_a_server_error() -> None:
    got = errors.from_reason("OUT_OF_COFFEE", "none left", {})
    assert type(got) is errors.ServerError
    assert got.message == "none left"


def test_errors_have_builtin_base_classes() -> None:
    assert issubclass(errors.StallError, TimeoutError)
    assert issubclass(errors.ServerUnavailableError, ConnectionError)
    assert issubclass(errors.InvalidRequestError, ValueError)
    assert issubclass(errors.MissingExtraError, ImportError)


def test_long_texts_are_cut_in_the_middle() -> None:
    error = UserCodeError("a" * 10_000_000 + "end", stage="s" * 10_000_000)
    assert len(error.message) < MAX_TEXT_CHARACTERS + 100
    assert error.message.startswith("aaa")
    assert error.message.endswith("end")
    assert "(9934467 characters left out)" in error.message
    assert len(error.metadata["stage"]) < MAX_TEXT_CHARACTERS + 100
    assert len(str(error)) == len(error.message)
