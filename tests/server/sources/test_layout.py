"""Layouts: what a source reads is what its columns declare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from infeed_server.sources.layout import Layout

COLUMNS = {
    "image": tf.TensorSpec([8, None], tf.uint8),
    "name": tf.TensorSpec([], tf.string),
    "any": tf.TensorSpec(None, tf.int64),
}
GOOD: dict[str, Any] = {
    "image": np.zeros((2, 8, 5), np.uint8),
    "name": np.array([b"a", b"b"], object),
    "any": np.zeros((2, 3), np.int64),
}


def test_columns_as_declared_have_no_problem() -> None:
    assert Layout(COLUMNS).problem(GOOD, 2) == ""


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (None, "returned a NoneType, not a dict of arrays"),
        ({"image": GOOD["image"]}, "returned the columns image; columns declares image, name, any"),
        (GOOD | {"x": 1}, "the columns image, name, any, x; columns declares image, name, any"),
        (GOOD | {"name": [b"a", b"b"]}, "returned the column 'name' as a list, not an array"),
        (GOOD | {"name": np.array([b"a", b"b"])}, "'name' as |S1[2]; for 2 samples, "),
        (
            GOOD | {"image": np.zeros((2, 7, 5), np.uint8)},
            "'image' as uint8[2, 7, 5]; for 2 samples, columns declares uint8[2, 8, ?]",
        ),
        (
            GOOD | {"any": np.zeros((2, 3), ">i8")},
            "'any' as >i8[2, 3]; for 2 samples",
        ),
        (
            GOOD | {"any": np.zeros(3, np.int64)},
            "'any' as int64[3]; for 2 samples",
        ),
        (GOOD | {"any": np.zeros((), np.int64)}, "as int64[]; for 2 samples"),
    ],
)
def test_other_columns_are_described(found: Any, problem: str) -> None:
    assert problem in Layout(COLUMNS).problem(found, 2)
