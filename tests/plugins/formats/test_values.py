"""Tests of `values.py`: values of elements as arrays of their fields."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from infeed_formats.values import Field, UnfitError, fit, to_value


class Tensor:
    """Stands for a tensor of another framework, which only `__array__` converts."""

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array


@pytest.mark.parametrize(
    ("value", "data_type", "shape", "content"),
    [
        (np.zeros((2, 3), np.uint8), "uint8", (2, 3), [[0] * 3] * 2),
        (np.array([1, 2], ">i2"), "int16", (2,), [1, 2]),
        (np.float16(0.5), "float16", (), 0.5),
        (np.array([1], ml_dtypes.bfloat16), "bfloat16", (1,), [1]),
        (7, "int64", (), 7),
        (2**63, "uint64", (), 2**63),
        (0.5, "float64", (), 0.5),
        (True, "bool", (), True),
        ([1, 2], "int64", (2,), [1, 2]),
        ([[1, 2.5]], "float64", (1, 2), [[1, 2.5]]),
        ((True, False), "bool", (2,), [True, False]),
        ([np.float32(1), np.float32(2)], "float32", (2,), [1, 2]),
        ([Tensor([1, 2]), Tensor([3, 4])], "int64", (2, 2), [[1, 2], [3, 4]]),
        (Tensor([1.0]), "float64", (1,), [1.0]),
        ("naïve", "bytes", (), "naïve".encode()),
        ("", "bytes", (), b""),
        (b"\0a\0", "bytes", (), b"\0a\0"),
        (bytearray(b"a"), "bytes", (), b"a"),
        (memoryview(b"a"), "bytes", (), b"a"),
        (np.array(["ü", "b"]), "bytes", (2,), ["ü".encode(), b"b"]),
        (np.array([b"a", "ü"], object), "bytes", (2,), [b"a", "ü".encode()]),
        (["a\0", b"b\0"], "bytes", (2,), [b"a\0", b"b\0"]),
        ([["a"], ["b"]], "bytes", (2, 1), [[b"a"], [b"b"]]),
        ([], None, (0,), []),
        ([[], []], None, (2, 0), [[], []]),
        (np.zeros((0, 2), np.int8), "int8", (0, 2), []),
    ],
)
def test_value_becomes_an_array(
    value: Any, data_type: str | None, shape: tuple[int, ...], content: Any
) -> None:
    found = to_value(value)
    assert found.data_type == data_type
    assert found.array.shape == shape
    assert found.array.tolist() == content


@pytest.mark.parametrize(
    ("value", "field", "content"),
    [
        (3, Field("x", "uint8"), 3),
        (3, Field("x", "float32"), 3.0),
        (0.1, Field("x", "bfloat16"), float(ml_dtypes.bfloat16(0.1))),
        ([1, 2], Field("x", "int8", (None,)), [1, 2]),
        (1e300, Field("x", "float32"), float("inf")),
        ([], Field("x", "int32", (None,)), []),
        ([], Field("x", "bytes", (0,)), []),
        (np.array([[1]], ">i4"), Field("x", "int32", (None, 1)), [[1]]),
    ],
)
def test_numbers_of_python_take_the_type_of_the_field(
    value: Any, field: Field, content: Any
) -> None:
    array = fit(value, field)
    assert to_value(array).data_type == field.data_type
    assert array.tolist() == content


@pytest.mark.parametrize(
    ("value", "field", "message"),
    [
        (300, Field("x", "uint8"), "has 300, outside the range of uint8"),
        ([-1, 3], Field("x", "uint64", (2,)), "has -1, outside the range of uint64"),
        (0.5, Field("x", "int64"), r"is float64\[\], not int64\[\]"),
        (1, Field("x", "bool"), r"is int64\[\], not bool\[\]"),
        (True, Field("x", "int64"), r"is bool\[\], not int64\[\]"),
        ("1", Field("x", "int64"), r"is bytes\[\], not int64\[\]"),
        (1, Field("x", "bytes"), r"is int64\[\], not bytes\[\]"),
        (np.int32(1), Field("x", "int64"), r"is int32\[\], not int64\[\]"),
        (np.zeros(3), Field("x", "float64", (None, 3)), r"is float64\[3\], not float64\[\?, 3\]"),
        (np.zeros((2, 4)), Field("x", "float64", (None, 3)), r"is float64\[2, 4\], not float64"),
        ([], Field("x", "int64"), r"is empty \[0\], not int64\[\]"),
        (None, Field("x", "int64"), "is None"),
    ],
)
def test_what_does_not_fit_its_field_is_refused(value: Any, field: Field, message: str) -> None:
    with pytest.raises(UnfitError, match=message):
        fit(value, field)
