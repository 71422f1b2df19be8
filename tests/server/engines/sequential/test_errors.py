"""Tests of the errors of sequential pipelines: copies for several callers."""

from __future__ import annotations

import pytest
import tensorflow as tf

from infeed.shared.errors import SourceError
from infeed_server.engines.sequential.errors import repeated


class TwoPartError(Exception):
    """An error that `copy` cannot construct again."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(f"{left} {right}")


@pytest.mark.parametrize(
    "error",
    [
        SourceError("it is empty", pipeline="p"),
        tf.errors.UnknownError(None, None, "no entry"),
        KeyError("k"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_copy_is_equal_and_has_the_original_as_its_cause(error: Exception) -> None:
    again = repeated(error)
    assert again is not error
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert getattr(again, "metadata", None) == getattr(error, "metadata", None)
    assert again.__cause__ is error


def test_error_without_copies_is_described() -> None:
    error = TwoPartError("a", "b")
    again = repeated(error)
    assert str(again) == "TwoPartError: a b"
    assert again.__cause__ is error
