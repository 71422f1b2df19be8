"""Tests of `columns.py`: the rows of elements, and serialized tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from infeed.shared.spec import BYTES, DATA_TYPES
from infeed.shared.spec.dtypes import numpy_dtype
from infeed_server.sources.python.elements import ColumnBuilder, fit_parts, serialize
from infeed_server.sources.python.values import Field, UnfitError

FIELDS = (
    Field("label", "int64"),
    Field("box", "float32", (2,)),
    Field("image", "uint8", (None, 2)),
    Field("text", "bytes"),
    Field("words", "bytes", (2,)),
)


def element(number: int) -> dict[str, Any]:
    return {
        "label": number,
        "box": [number, 0.5],
        "image": np.full((number + 1, 2), number, np.uint8),
        "text": f"t{number}",
        "words": ("a", b"b"),
    }


def test_elements_become_rows() -> None:
    builder = ColumnBuilder(FIELDS, 2)
    builder.set(1, fit_parts(element(1), FIELDS))
    builder.set(0, fit_parts(element(0), FIELDS))
    columns = builder.columns
    assert columns["label"].tolist() == [0, 1]
    assert columns["label"].dtype == np.int64
    np.testing.assert_array_equal(columns["box"], np.array([[0, 0.5], [1, 0.5]], np.float32))
    assert columns["text"].tolist() == [b"t0", b"t1"]
    assert columns["words"].tolist() == [[b"a", b"b"]] * 2
    image = tf.io.parse_tensor(columns["image"][1], tf.uint8).numpy()
    np.testing.assert_array_equal(image, element(1)["image"])


def test_a_row_is_a_copy() -> None:
    builder = ColumnBuilder(FIELDS[1:3], 2)
    memory = fit_parts(element(1), FIELDS)
    for row in range(2):
        memory["image"][:] = row
        memory["box"][0] = row
        builder.set(row, memory)
    assert builder.columns["box"][:, 0].tolist() == [0, 1]
    assert builder.columns["image"][0] != builder.columns["image"][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 0.5}, r"^does not fit: its field 'label' is float64\[\], not int64\[\]$"),
        ({"image": np.zeros(3, np.uint8)}, r"'image' is uint8\[3\], not uint8\[\?, 2\]"),
        ({"more": 1}, "^has the field 'more', and the first elements have label, box, image"),
    ],
)
def test_element_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        fit_parts({**element(0), **change}, FIELDS)
    with pytest.raises(UnfitError, match=r"no field 'box', expected as float32\[2\]; it has: l"):
        fit_parts({"label": 3}, FIELDS)


def test_other_fields_are_ignored_if_allowed() -> None:
    parts = {"more": object(), "label": 3}
    assert fit_parts(parts, FIELDS[:1], allow_others=True) == {"label": 3}


@pytest.mark.parametrize("data_type", [item for item in DATA_TYPES if item != BYTES])
def test_tensorflow_parses_each_type(data_type: str) -> None:
    values = np.array([[0, 1, 2], [100, 7, 1]]).astype(numpy_dtype(data_type))
    dtype = tf.as_dtype(data_type)
    # One value, none, more than a byte can count, and not contiguous in memory.
    for array in (values[:1, :1], values[:0], np.tile(values, (100, 2)), values.T):
        parsed = tf.io.parse_tensor(serialize(array, data_type), dtype).numpy()
        assert parsed.dtype == array.dtype
        np.testing.assert_array_equal(parsed, array)


def test_tensorflow_parses_text_and_other_byte_orders() -> None:
    words = np.array([[b"", b"\0a\0"], [b"x" * 300, b"b"]], object)
    assert tf.io.parse_tensor(serialize(words, BYTES), tf.string).numpy().tolist() == words.tolist()
    swapped = np.array([1, 2], ">f4")
    assert tf.io.parse_tensor(serialize(swapped, "float32"), tf.float32).numpy().tolist() == [1, 2]
    halves = np.array([1, 2], ml_dtypes.bfloat16)
    assert tf.io.parse_tensor(serialize(halves, "bfloat16"), tf.bfloat16).shape == [2]
