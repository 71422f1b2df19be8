"""Tests of `elements.py`: names of values, fields of several elements, rows and tensors."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

from infeed_formats.elements import (
    ColumnBuilder,
    Example,
    fit_parts,
    infer_fields,
    split,
    to_values,
)
from infeed_formats.values import Field, UnfitError

Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("element", "names", "parts"),
    [
        ({"a": 1, "b": 2}, None, {"a": 1, "b": 2}),
        (OrderedDict(b=1, a=2), None, {"b": 1, "a": 2}),
        ((1, "x"), None, {"0": 1, "1": "x"}),
        ([1, 2], ("image", "label"), {"image": 1, "label": 2}),
        (Point(3, 4), None, {"x": 3, "y": 4}),
        (Point(3, 4), ("a", "b"), {"a": 3, "b": 4}),
        (5, None, {"value": 5}),
        ("text", ("words",), {"words": "text"}),
        (b"ab", None, {"value": b"ab"}),
    ],
)
def test_parts_have_names(element: Any, names: Any, parts: dict[str, Any]) -> None:
    assert dict(split(element, names)) == parts


@pytest.mark.parametrize(
    ("element", "names", "message"),
    [
        ((1, 2, 3), ("a", "b"), "has 3 parts, but names has 2: a, b"),
        (1, ("a", "b"), "has 1 parts, but names has 2: a, b"),
        ({"a": 1}, ("b",), r"is a dict with its own names \(a\); leave out names"),
        ({1: 1}, None, "is a dict with the key 1; field names must be text"),
        ({"": 1}, None, "is a dict with the key ''"),
        ({}, None, "is empty"),
        ((), None, "is empty"),
    ],
)
def test_other_elements_are_refused(element: Any, names: Any, message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        split(element, names)


def fields(*values: Any) -> list[str]:
    """Returns the field of each of these values, which several elements have in turn."""
    examples = [Example(number, to_values({"x": value})) for number, value in enumerate(values)]
    return [str(field) for field in infer_fields(examples)]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ([1, 2], "int64[]"),
        ([1, 0.5], "float64[]"),
        ([np.float32(1), 2, 0.5], "float32[]"),
        ([1, np.int8(2)], "int8[]"),
        ([[], [1, 2]], "int64[?]"),
        ([[1, 2], []], "int64[?]"),
        ([[], ["a"]], "bytes[?]"),
        ([np.zeros((2, 3)), np.zeros((2, 3))], "float64[2, 3]"),
        ([np.zeros((2, 3)), np.zeros((4, 3)), np.zeros((2, 3))], "float64[?, 3]"),
        (["a", b"b"], "bytes[]"),
    ],
)
def test_field_fits_all_examples(values: list[Any], field: str) -> None:
    assert fields(*values) == [field]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([np.int32(1), np.int64(2)], r"^0 has the field 'x' as int32\[\], but element 1 as int64"),
        ([np.int32(1), 0.5], "data type"),
        ([1, "a"], r"as int64\[\], but element 1 as bytes\[\]; all must have the same data"),
        ([True, 1], "same data type"),
        ([np.zeros(3), np.zeros((1, 3))], "number of dimensions"),
        ([[1], 1], "number of dimensions"),
        ([1, np.int64(1), np.uint8(1)], "as int64.*uint8.*; all must have the same data"),
        ([[], []], "like the other elements examined; declare its type"),
    ],
)
def test_examples_without_a_common_field_are_refused(values: list[Any], message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        fields(*values)


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
    np.testing.assert_array_equal(columns["image"][1], element(1)["image"])


def test_a_row_is_a_copy() -> None:
    builder = ColumnBuilder(FIELDS[1:3], 2)
    memory = fit_parts(element(1), FIELDS)
    for row in range(2):
        memory["image"][:] = row
        memory["box"][0] = row
        builder.set(row, memory)
    assert builder.columns["box"][:, 0].tolist() == [0, 1]
    assert (builder.columns["image"][0] != builder.columns["image"][1]).all()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"x": 0.5, "y": 1}, r"^does not fit: its field 'x' is float64\[\], not int64\[\]$"),
        ({"x": 1}, r"^has no field 'y', expected as int64\[\]; it has: x$"),
        ({"x": 1, "y": 1, "z": 2}, "^has the field 'z', but the first elements have only x, y"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: Any, message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        fit_parts(parts, (Field("x", "int64"), Field("y", "int64")))
