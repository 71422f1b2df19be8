"""Finish transforms in NumPy; the server's test_numeric.py compares them with TensorFlow."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.harness.examples import examples
from tests.harness.numbers import INTS, NUMBERS, extreme_values

from infeed.shared.finish import apply, finish, finished_spec
from infeed.shared.spec import Cast, FieldSpec, Normalize, OneHot, numpy_dtype

ALL = np.ones(2, np.bool_)

finish_module = sys.modules[finish.__module__]


def test_normalize_rounds_each_step_in_the_result_type() -> None:
    x = np.arange(256, dtype=np.uint8)
    transform = Normalize("x", scale=255.0, mean=(0.485,), std=(0.229,))
    step = np.float32
    expected = (x.astype(step) / step(255) - step(0.485)) / step(0.229)
    assert apply(transform, x).tobytes() == expected.tobytes()


def test_normalize_along_the_last_dimension() -> None:
    x = np.ones((2, 4, 3), np.uint8)
    result = apply(Normalize("x", mean=(1.0, 2.0, 3.0), std=(1.0, 2.0, 4.0)), x)
    np.testing.assert_array_equal(result, np.broadcast_to([0, -0.5, -0.5], x.shape))
    assert result.dtype == np.float32


@examples(50)
@given(x=hnp.arrays(np.float64, 5, elements=st.floats(-100, 100)))
def test_cast_truncates_floats_towards_zero(x: Any) -> None:
    np.testing.assert_array_equal(apply(Cast("x", "int8"), x), np.trunc(x).astype(np.int64))


@pytest.mark.parametrize("source", NUMBERS)
@pytest.mark.parametrize("target", INTS)
def test_cast_saturates_in_each_integer_type(source: str, target: str) -> None:
    x = extreme_values(source)
    limits = np.iinfo(target)
    exact = x if source in ("bool", *INTS) else x.astype(np.float64)
    expected = [saturated(value, limits.min, limits.max) for value in exact.tolist()]
    assert apply(Cast("x", target), x).tolist() == expected
    assert [apply(Cast("x", target), value).tolist() for value in x] == expected


def saturated(value: float, low: int, high: int) -> int:
    if math.isnan(value):
        return 0
    return int(max(low, min(value, high)))


def test_one_hot_values_and_labels_out_of_range() -> None:
    result = apply(OneHot("x", 2, "int32", 5, -1), np.array([-1, 0, 1, 2, 1 << 40]))
    assert result.tolist() == [[-1, -1], [5, -1], [-1, 5], [-1, -1], [-1, -1]]
    assert apply(OneHot("x", 2, "bool"), np.array([1])).tolist() == [[False, True]]


def test_empty_slots_are_zero_after_transforms() -> None:
    arrays = {"x": np.zeros((2, 3), np.uint8), "label": np.zeros(2, np.int64)}
    transforms = [
        Normalize("x", mean=(1.0,)),
        OneHot("label", 3, off_value=0.5),
        Cast("label", "float64"),
    ]
    result = finish(arrays, transforms, np.array([True, False]))
    np.testing.assert_array_equal(result["x"], [[-1, -1, -1], [0, 0, 0]])
    np.testing.assert_array_equal(result["label"], [[1, 0.5, 0.5], [0, 0, 0]])


def test_finished_spec_matches_the_finished_arrays() -> None:
    spec = (
        FieldSpec("image", "uint8", (4, 4, 3)),
        FieldSpec("name", "bytes"),
        FieldSpec("label", "int64", (5,)),
    )
    transforms = [
        Normalize("image", scale=255.0, data_type="float16"),
        OneHot("label", 7),
        Cast("label", "float64"),
    ]
    finished = finished_spec(spec, transforms)
    assert finished == (
        FieldSpec("image", "float16", (4, 4, 3)),
        FieldSpec("name", "bytes"),
        FieldSpec("label", "float64", (5, 7)),
    )
    arrays = finish({field.name: field.zeros(2) for field in spec}, transforms, ALL)
    for field in finished:
        zeros = field.zeros(2)
        assert (arrays[field.name].shape, arrays[field.name].dtype) == (zeros.shape, zeros.dtype)


def reference(transform: Any, x: Any) -> Any:
    """Returns the transform of the whole array at once."""
    with np.errstate(all="ignore"):
        if isinstance(transform, Cast):
            dtype = numpy_dtype(transform.data_type)
            limits = np.iinfo(dtype) if dtype.kind in "iu" else None
            return (x if limits is None else np.clip(x, limits.min, limits.max)).astype(dtype)
        result = x.astype(numpy_dtype(transform.data_type))
        kind = result.dtype.type
        if transform.scale is not None:
            result = result / kind(transform.scale)
        if transform.mean:
            result = result - kind(transform.mean[0])
        if transform.std:
            result = result / kind(transform.std[0])
        return result


CASES: list[Any] = [
    Cast("x", "uint8"),
    Cast("x", "int16"),
    Cast("x", "float16"),
    Normalize("x", scale=255.0),
    Normalize("x", scale=3.0, mean=(0.485,), std=(0.229,), data_type="float16"),
    Normalize("x", mean=(0.1,), data_type="bfloat16"),
]


@examples(100)
@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9),
    block=st.integers(1, 200),
    transform=st.sampled_from(CASES),
    strided=st.booleans(),
)
def test_blocks_of_any_size_do_not_change_the_result(
    shape: tuple[int, ...], block: int, transform: Any, strided: bool
) -> None:
    x = np.arange(2 * int(np.prod(shape)), dtype=np.int32).reshape(2, *shape)[0]
    if strided:
        x = x.T[::-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish_module, "_BLOCK_BYTES", block)
        result = apply(transform, x)
    expected = reference(transform, x)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    assert result.tobytes() == expected.tobytes()
